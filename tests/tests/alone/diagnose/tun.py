# A VPN daemon that sleeps a while after each packet.
#   tun.py SLEEP_MS
# Its queue has half a second of what is sent: a reader that sleeps overflows it, and one that is held up for a while does not.
import fcntl, os, struct, subprocess, sys, time

tun = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH", b"tun0", 0x0001 | 0x1000))  # TUNSETIFF: IFF_TUN, IFF_NO_PI
for command in ["addr add 10.8.0.1/24 dev tun0", "link set tun0 up txqueuelen 5000"]:
    subprocess.check_call(["ip", *command.split()])
print("ready", file=sys.stderr, flush=True)
while True:
    os.read(tun, 2048)
    time.sleep(float(sys.argv[1]) / 1000)
