#!/bin/busybox sh
# The first process of an emulated machine: mounts, modules, addresses, the caller's command, then power off.
#
# Outputs, each a virtio-serial port: stdout, stderr, and code, which receives only the command's exit code. No code
# means that the machine did not finish.
# The console shows from here on that the kernel came up (STARTED of console.rs).
echo "init: started"
/bin/busybox mkdir -p /bin /proc /sys /dev /tmp /run /root /etc /files /var/lib
/bin/busybox --install -s /bin
export PATH=/files:/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mount -t tracefs tracefs /sys/kernel/tracing
mount -t bpf bpf /sys/fs/bpf
ln -s /proc/self/fd /dev/fd
ln -s fd/0 /dev/stdin && ln -s fd/1 /dev/stdout && ln -s fd/2 /dev/stderr
mkdir -p /dev/pts && mount -t devpts devpts /dev/pts
hostname udpath-vm
# Disable the kernel's user-mode helpers, so that requests to them fail at once.
echo > /proc/sys/kernel/hotplug 2> /dev/null

while read -r module; do
    insmod "/modules/$module.ko" || echo "init: cannot load $module"
done < /modules/order

# Prints the device of the port with this name. The host names the ports shortly after the driver loads.
port() {
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        for port in /sys/class/virtio-ports/*; do
            if read -r name < "$port/name" && [ "$name" = "$1" ]; then
                echo "/dev/${port##*/}"
                return
            fi
        done 2> /dev/null
        sleep 0.5
    done
    echo "init: there is no port $1" > /dev/console
    echo /dev/console
}
stdout=$(port stdout) stderr=$(port stderr) code=$(port code)

if [ -e /modules/out ]; then
    mkdir -p /out
    mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 out /out || echo "init: cannot mount /out"
fi

ip link set lo up
link=0
while [ -e "/sys/class/net/eth$link" ]; do
    ip addr add "10.0.$link.2/24" dev "eth$link"
    ip link set "eth$link" up
    link=$((link + 1))
done

# Through pipes: a port allows one opener at a time, and programs reopen /dev/stderr.
mkfifo /run/stdout /run/stderr
cat /run/stdout > "$stdout" & readers=$!
cat /run/stderr > "$stderr" & readers="$readers $!"
cd /root
/modules/command < /dev/null > /run/stdout 2> /run/stderr
ended=$?
# Processes the command left running would keep the pipes open.
for process in /proc/[0-9]*; do
    process=${process#/proc/}
    case " 1 $readers " in
        *" $process "*) ;;
        *) kill -9 "$process" 2> /dev/null ;;
    esac
done
wait
[ -e /modules/out ] && umount /out
echo $ended > "$code"
poweroff -f
# The emulator may take a moment to exit; if this process exited first, the kernel would panic.
sleep 1000
