# A server with a connected socket that busy-polls, and its client.
#   poller.py PORT [ADDRESS]
# With an address it is the client, which sends a datagram every 10 ms. Ends by itself after 20 s.
import socket, sys, time

port, client = int(sys.argv[1]), sys.argv[2:]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(20)
if client:
    s.connect((client[0], port))
else:
    s.setsockopt(socket.SOL_SOCKET, 46, 50)  # SO_BUSY_POLL
    s.bind(("0.0.0.0", port))
print("ready", file=sys.stderr, flush=True)
if not client:
    data, peer = s.recvfrom(99)
    s.connect(peer)
    s.send(data)
end = time.monotonic() + 20
while time.monotonic() < end:
    if client:
        s.send(b"x")
        s.recv(99)
        time.sleep(0.01)
    else:
        s.send(s.recv(99))
