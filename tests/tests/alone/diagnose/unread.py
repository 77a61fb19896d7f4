# An echo server that sends from the address of its link, as responders of discovery protocols do, and works for a twentieth of the time.
#   unread.py ADDRESS PORT unread|both|slow|member|members
# It reads the wildcard address, and has bound ADDRESS as well, which gets all datagrams: with `unread` it never reads that, with `both` it
# does, with `slow` it does and sleeps for 2 ms after each. With `member` both are of one group (SO_REUSEPORT) at the wildcard address, of
# which it reads the first; with `members` both.
import socket, sys, threading, time

address, port, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
group = how.startswith("member")


def bound(host):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT if group else socket.SO_REUSEADDR, 1)
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
        (s if group else second).sendto(data, peer)
        if how == "slow":
            time.sleep(0.002)


first, second = bound("0.0.0.0"), bound("0.0.0.0" if group else address)
threading.Thread(target=other_work, daemon=True).start()
if how not in ("unread", "member"):
    threading.Thread(target=serve, args=[second], daemon=True).start()
print("ready", file=sys.stderr, flush=True)
serve(first)
