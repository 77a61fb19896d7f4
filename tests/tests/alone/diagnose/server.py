# An echo server that takes a while for each datagram.
#   server.py PORT BUSY_US RECEIVE_BUFFER WORKERS [log|by-cpu|restarted]
# Each worker is a process with a socket of its own; prints their PIDs once all serve. With `log`, each datagram is a line of
# a file. With `by-cpu`, each worker is bound to the CPU of its number, and a program selects the socket by CPU; with `restarted`,
# the first worker's socket was then closed and bound again.
import ctypes, os, socket, struct, sys, tempfile, time

port, busy, buffer, workers = (int(argument) for argument in sys.argv[1:5])
log = tempfile.TemporaryFile(buffering=0) if sys.argv[5:] == ["log"] else None
by_cpu = sys.argv[5:] in (["by-cpu"], ["restarted"])


def bound():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if buffer:
        s.setsockopt(socket.SOL_SOCKET, 33, buffer)  # SO_RCVBUFFORCE
    s.bind(("0.0.0.0", port))
    return s


def select_by_cpu(s):
    # A = the CPU's number (SKF_AD_OFF + SKF_AD_CPU); return A
    steps = ctypes.create_string_buffer(struct.pack("HBBIHBBI", 0x20, 0, 0, 0xFFFFF024, 0x16, 0, 0, 0))
    program = struct.pack("HP", 2, ctypes.addressof(steps))
    s.setsockopt(socket.SOL_SOCKET, 51, program)  # SO_ATTACH_REUSEPORT_CBPF


sockets = [bound() for _ in range(workers)]
if by_cpu:
    select_by_cpu(sockets[0])
if sys.argv[5:] == ["restarted"]:
    sockets[0].close()
    sockets[0] = bound()


def prepare(s):
    if by_cpu:
        os.sched_setaffinity(0, {sockets.index(s)})


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
prepared, tell = os.pipe()
for s in sockets[1:]:
    pid = os.fork()
    if pid == 0:
        prepare(s)
        for other in sockets:
            if other is not s:
                other.close()
        os.write(tell, b".")
        serve(s)
    children.append(pid)
for s in sockets[1:]:
    s.close()
prepare(sockets[0])
# A worker that is not bound to its CPU yet, or holds the sockets of others, is another server than the one to be diagnosed.
for _ in children:
    os.read(prepared, 1)
print("ready", os.getpid(), *children, file=sys.stderr, flush=True)
serve(sockets[0])
