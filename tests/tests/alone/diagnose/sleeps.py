# An echo server that sleeps before each answer.
#   sleeps.py ADDRESS PORT SECONDS
import socket, sys, time

s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], int(sys.argv[2])))
print("ready", file=sys.stderr, flush=True)
while True:
    data, peer = s.recvfrom(4096)
    if float(sys.argv[3]):
        time.sleep(float(sys.argv[3]))
    s.sendto(data, peer)
