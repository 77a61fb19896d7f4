# An echo server that sends from the address of its link, as responders of discovery protocols do, and works for a twentieth of the time.
#   unread.py ADDRESS PORT unread|both|slow
# It reads the wildcard address, and has bound ADDRESS as well, which gets all datagrams: with `unread` it never reads that, with `both` it
# does, with `slow` it does and sleeps for 2 ms after each.
import socket, sys, threading, time

address, port, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def bound(host):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((host, port))
    return s


def other_work():
    while True:
        end = time.perf_counter() + 0.0025
        while time.perf_counter() < end:
            pass
        time.sleep(0.05)


def serve(s):
    while True:
        data, peer = s.recvfrom(4096)
        second.sendto(data, peer)
        if how == "slow":
            time.sleep(0.002)


first, second = bound("0.0.0.0"), bound(address)
threading.Thread(target=other_work, daemon=True).start()
if how != "unread":
    threading.Thread(target=serve, args=[second], daemon=True).start()
print("ready", file=sys.stderr, flush=True)
serve(first)
