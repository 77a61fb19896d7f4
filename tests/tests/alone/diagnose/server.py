# An echo server that takes a while for each datagram.
#   server.py PORT BUSY_US RECEIVE_BUFFER WORKERS
# Each worker is a process with a socket of its own; prints their PIDs once all are bound.
import os, socket, sys, time

port, busy, buffer, workers = (int(argument) for argument in sys.argv[1:5])
sockets = []
for _ in range(workers):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if buffer:
        s.setsockopt(socket.SOL_SOCKET, 33, buffer)  # SO_RCVBUFFORCE
    s.bind(("0.0.0.0", port))
    sockets.append(s)


def serve(s):
    while True:
        data, peer = s.recvfrom(4096)
        end = time.perf_counter_ns() + busy * 1000
        while time.perf_counter_ns() < end:
            pass
        s.sendto(data, peer)


children = []
for s in sockets[1:]:
    pid = os.fork()
    if pid == 0:
        for other in sockets:
            if other is not s:
                other.close()
        serve(s)
    children.append(pid)
for s in sockets[1:]:
    s.close()
print("ready", os.getpid(), *children, file=sys.stderr, flush=True)
serve(sockets[0])
