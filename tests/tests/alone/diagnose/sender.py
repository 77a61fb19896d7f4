# Sends datagrams, and does not wait for replies.
#   sender.py ADDRESS PORT SIZE BURST PAUSE_MS FLOWS [checksum|dead]
# With `checksum`, every UDP checksum is wrong; with `dead`, each flow has an address of its own, from 198.18.0.100 on. Ends by itself
# after 20 s.
import socket, struct, sys, time

address, port, size, burst, pause, flows = sys.argv[1], *(int(argument) for argument in sys.argv[2:7])
wrong = sys.argv[7:] == ["checksum"]
payload = b"x" * size
if wrong:
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)]
    payload = struct.pack("!HHHH", 4000, port, 8 + size, 0x1234) + payload
else:
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(flows)]
if sys.argv[7:] == ["dead"]:
    for at, s in enumerate(sockets):
        s.bind(("198.18.0.%d" % (100 + at), 0))
for s in sockets:
    s.connect((address, port))
    s.setblocking(False)
print("ready", file=sys.stderr, flush=True)
end = time.monotonic() + 20
while time.monotonic() < end:
    for at in range(burst):
        try:
            sockets[at % len(sockets)].send(payload)
        except OSError:
            pass  # the other side refuses, or the queue is full
        if not pause:
            spin = time.perf_counter_ns() + 20_000  # a slow program, rather than a fast flood
            while time.perf_counter_ns() < spin:
                pass
    if pause:
        time.sleep(pause / 1000)
