# A collector that asks for the name of each client before it reads on.
#   looks_up.py PORT NAME_SERVER
# As the C library does: a socket connected to the name server for each look-up, and a wait for its reply.
import os, socket, sys

QUESTION = bytes.fromhex("01000001000000000000") + b"\x011\x010\x010\x03127\x07in-addr\x04arpa\0\0\x0c\0\x01"

s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", int(sys.argv[1])))
print("ready", file=sys.stderr, flush=True)
while True:
    data, peer = s.recvfrom(4096)
    asks = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asks.settimeout(0.5)
    asks.connect((sys.argv[2], 53))
    try:
        asks.send(os.urandom(2) + QUESTION)
        asks.recv(512)
    except OSError:
        pass
    asks.close()
