# Sends datagrams, and does not wait for replies.
#   sender.py ADDRESS PORT SIZE BURST PAUSE_MS FLOWS [checksum|dead|first|many]
# With `checksum`, every UDP checksum is wrong; with `dead`, each flow has an address of its own, from 198.18.0.100 on; with `first`, only
# the first fragment of each datagram is sent; with `many`, no two datagrams are of one flow. Ends by itself after 20 s.
import socket, struct, sys, time

address, port, size, burst, pause, flows = sys.argv[1], *(int(argument) for argument in sys.argv[2:7])
mode = sys.argv[7] if len(sys.argv) > 7 else ""
payload = b"x" * size


def ipv4(source, number, more, datagram):
    """A packet; the kernel fills in its length and its checksum, and the source if it is 0."""
    fragment = 0x2000 if more else 0
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 0, number, fragment, 64, 17, 0, source, socket.inet_aton(address))
    return header + datagram


def datagrams():
    """What is sent, in the modes that send packets."""
    number = 0
    while True:
        number = number % 0xFFFFFF + 1
        if mode == "first":
            udp = struct.pack("!HHHH", 4000, port, 8 + size, 0)
            yield ipv4(bytes(4), number & 0xFFFF or 1, True, (udp + payload)[:1400])
        else:
            udp = struct.pack("!HHHH", 1024 + number % 32768, port, 8 + size, 0)
            yield ipv4(struct.pack("!I", 0xC6120000 + number // 32768), 0, False, udp + payload)


packets = datagrams() if mode in ("first", "many") else None
if packets:
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)]
elif mode == "checksum":
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)]
    payload = struct.pack("!HHHH", 4000, port, 8 + size, 0x1234) + payload
else:
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(flows)]
if mode == "dead":
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
            sockets[at % len(sockets)].send(next(packets) if packets else payload)
        except OSError:
            pass  # the other side refuses, or the queue is full
        if not pause:
            spin = time.perf_counter_ns() + 20_000  # a slow program, rather than a fast flood
            while time.perf_counter_ns() < spin:
                pass
    if pause:
        time.sleep(pause / 1000)
