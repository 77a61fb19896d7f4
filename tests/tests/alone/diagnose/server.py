# An echo server that takes a while for each datagram.
#   server.py PORT BUSY_US RECEIVE_BUFFER WORKERS [log]
# Each worker is a process with a socket of its own; prints their PIDs once all are bound. With `log`, each datagram is a line of
# a file.
import os, socket, sys, tempfile, time

port, busy, buffer, workers = (int(argument) for argument in sys.argv[1:5])
log = tempfile.TemporaryFile(buffering=0) if sys.argv[5:] == ["log"] else None
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
        if log:
            log.write(b"client %s#%d: query: %s IN A + (%s)\n" % (peer[0].encode(), peer[1], data[:40].hex().encode(), b"-" * 20))
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
