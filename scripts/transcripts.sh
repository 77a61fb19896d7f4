#!/usr/bin/env bash
# Reruns every terminal transcript of README.md and docs/ and replaces it with the new output.
#
#     scripts/transcripts.sh                       all pages
#     scripts/transcripts.sh docs/commands/*.md    these pages
#     scripts/transcripts.sh --list                list the markers, run nothing
#
# A transcript is a code block behind a marker; a marker may hold several commands, one per line:
#
#     <!-- transcript SCENE [OPTION...]: COMMAND -->
#
# SCENE is one of the functions scene_* below. Options: lines=N keeps the first N lines; from=TEXT keeps the output
# from the first line that starts with TEXT (_ for a space); stderr includes messages; keys=ABC (scene screen) are
# pressed one after another. A command that exits with more than 1 (1: findings), or prints nothing, ends the script
# and leaves its page unchanged.
#
# UDPATH is the program, by default target/release/udpath. Run it as root on a quiet machine: the figures depend on
# the machine, so the page must name it. Needs the packages that scripts/setup.sh installs.
set -euo pipefail
cd "$(dirname "$0")/.."
export UDPATH=${UDPATH:-$PWD/target/release/udpath} NO_COLOR=1 COLUMNS=100
work=$(mktemp -d)
lab=docs-$$
background=()

stop() {
    local pid
    for pid in "${background[@]}"; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true; done
    background=()
    if [ -e "$work/lab" ]; then
        udpath lab down "$lab" >/dev/null 2>&1 || true
        rm -f "$work/lab"
    fi
    if [ -e "$work/multiplied" ]; then
        udpath multiply echo --stop >/dev/null 2>&1 || true
        rm -f "$work/multiplied"
    fi
    if [ -e "$work/nsd" ]; then
        rm -rf "$(cat "$work/nsd")" "$work/nsd"
    fi
    if [ -e "$work/slice" ]; then
        echo 1 > "$(cat "$work/slice")/cgroup.kill"
        sleep 1
        find "$(cat "$work/slice")" -depth -type d -exec rmdir {} \;
        rm -f "$work/slice"
    fi
}
trap 'stop; rm -rf "$work"' EXIT

fail() {
    echo "transcripts: $*" >&2
    exit 1
}

# A journal of its own, so that applies are numbered from 1 and the machine's journal is untouched.
inside() {
    if [ "${UDPATH_TRANSCRIPTS:-}" != inside ]; then
        exec unshare --mount --propagation private -- env UDPATH_TRANSCRIPTS=inside "$0" "$@"
    fi
    mkdir -p /var/lib/udpath
    mount -n -t tmpfs -o mode=755 transcripts /var/lib/udpath
    # And policies of its own, which end with the namespace.
    mount -n -t bpf transcripts /sys/fs/bpf
}

# Prints a command as typed and its output, cut according to the options. $1: the command; $2: a file with the output.
print() {
    local text
    text=$(sed 's/[[:space:]]*$//' "$2")
    [ -n "$text" ] || fail "$page: '$1' prints nothing"
    echo "\$ $1"
    if [ -n "$from" ]; then
        text=$(awk -v from="$from" 'index($0, from) == 1 { on = 1 } on' <<< "$text")
        [ -n "$text" ] || fail "$page: '$1' prints no line that starts with '$from'"
        echo "[...]"
    fi
    if [ -n "$lines" ] && [ "$(wc -l <<< "$text")" -gt "$lines" ]; then
        head -n "$lines" <<< "$text"
        echo "[...]"
    else
        cat <<< "$text"
    fi
}

# Runs commands and prints them. $1: their prefix, such as `udpath lab exec docs/server --`, or nothing.
each() {
    local prefix=$1 command status
    shift
    for command; do
        status=0
        # shellcheck disable=SC2086
        $prefix bash -o pipefail -c "$command" > "$work/out" 2> "$work/err" || status=$?
        [ "$status" -le 1 ] || fail "$page: '$command' exits with $status: $(head -c 2000 "$work/err")"
        [ -z "$stderr" ] || cat "$work/err" >> "$work/out"
        print "$command" "$work/out"
    done
}

# Two machines, client and server, joined by one link with two queues.
two_machines() {
    udpath lab up "$lab" --queues 2 --xdp server >/dev/null 2> "$work/err" || fail "lab up: $(cat "$work/err")"
    : > "$work/lab"
}

# Starts a program in a machine of the lab for the duration of the scene.
start() {
    local machine=$1
    shift
    udpath lab exec "$lab/$machine" -- "$@" > "$work/background" 2>&1 &
    background+=($!)
    sleep 1
    kill -0 "${background[-1]}" 2>/dev/null || fail "$page: '$*' ends at once: $(cat "$work/background")"
}

# On this machine, in the root of the repository.
scene_host() { each "" "$@"; }

# The demo; several pages show it, so it runs once.
scene_demo() {
    if [ ! -s "$work/demo" ]; then
        make -s demo > "$work/demo" 2> "$work/err" || fail "make demo: $(tail -5 "$work/err")"
    fi
    print "$1" "$work/demo"
}

# On the client, with an idle echo server at 10.0.0.2:7.
scene_echo() {
    two_machines
    start server "$UDPATH" serve echo --bind 0.0.0.0:7 --io reuseport
    each "udpath lab exec $lab/client --" "$@"
}

# On the client, with an echo server and a NATS server at 10.0.0.2, and ten agents on the client.
scene_fleet() {
    local agent
    two_machines
    start server "$UDPATH" serve echo --bind 0.0.0.0:7 --io reuseport
    start server nats-server -a 10.0.0.2 -p 4222
    for agent in host{01..10}; do
        start client "$UDPATH" agent --nats nats://10.0.0.2:4222 --name "$agent" --allow 10.0.0.2:7
    done
    each "udpath lab exec $lab/client --" "$@"
}

# In a folder with captures of eleven machines, one of them a result of show; two differ in what is changed below. One more is damaged.
scene_captures() {
    local capture=$PWD/crates/host/tests/fixtures/captured/firecracker-2-cpus.tar.gz number
    if [ ! -d "$work/captures" ]; then
        mkdir "$work/captures" "$work/machine"
        tar -xzf "$capture" -C "$work/machine"
        for number in {01..08}; do cp "$capture" "$work/captures/dns$number.tar.gz"; done
        "$UDPATH" show --sysroot "$capture" --json > "$work/captures/dns09.json"
        echo 8388608 > "$work/machine/now/proc/sys/net/core/rmem_max"
        tar -czf "$work/captures/dns10.tar.gz" -C "$work/machine" .
        echo 3 > "$work/machine/now/sys/class/net/eth0/queues/rx-0/rps_cpus"
        tar -czf "$work/captures/dns11.tar.gz" -C "$work/machine" .
        head -c 5000 "$capture" > "$work/captures/dns12.tar.gz"
    fi
    each "env -C $work" "$@"
}

# On the server: one socket, two workers, as much load as it can handle, from an engine with little overhead.
busy() {
    two_machines
    start server "$UDPATH" serve echo --bind 0.0.0.0:7 --io shared "$@"
    start client "$UDPATH" load echo 10.0.0.2:7 --engine kernel --flows 64 --inflight 6 -d 600s
}
scene_busy() {
    busy
    each "udpath lab exec $lab/server --" "$@"
}

# Two profiles, one with a system call per datagram (a.json) and one with bursts (b.json), then the commands.
scene_diff() {
    local options name
    for name in a b; do
        options=()
        [ "$name" = b ] || options=(--batch 1 --no-gso)
        busy "${options[@]}"
        udpath lab exec "$lab/server" -- "$UDPATH" profile --port 7 -d 3s --rate 997 --trace none --json > "$work/$name.json"
        stop
    done
    each "env -C $work" "$@"
}

# A full screen of 80 columns, on a server under overload; a screenshot after each key.
scene_screen() {
    local key
    two_machines
    start server "$UDPATH" serve echo --bind 0.0.0.0:7 --io reuseport --rcvbuf 20000
    start client "$UDPATH" load echo 10.0.0.2:7 --flows 64 --inflight 64 -d 600s
    tmux -L "$lab" -f /dev/null new-session -d -x 80 -y 24 "PATH='$PATH' '$UDPATH' lab exec $lab/server -- $1"
    sleep 4
    echo "\$ $1"
    for ((at = 0; at < ${#keys}; at++)); do
        key=${keys:at:1}
        tmux -L "$lab" send-keys "$key"
        sleep 2
        [ "$at" -eq 0 ] || echo
        tmux -L "$lab" capture-pane -p | sed 's/[[:space:]]*$//' | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}' | grep -v '^$'
    done
    tmux -L "$lab" kill-server
}

# A server that sets no option, at port 9125, in the cgroup /collector.slice/collector.service. restart-collector starts it
# in a new one, as systemd would.
scene_policy() {
    local slice
    slice=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/self/mounts)/collector.slice
    mkdir "$slice" || fail "$slice exists, or cgroup v2 is not mounted"
    echo "$slice" > "$work/slice"
    mkdir -p "$work/bin"
    cat > "$work/bin/collector" <<'SERVER'
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 9125))
while True:
    s.recv(2048)
SERVER
    cat > "$work/bin/restart-collector" <<RESTART
#!/bin/sh
group=$slice/collector.service
if [ -d \$group ]; then
    echo 1 > \$group/cgroup.kill
    until rmdir \$group 2> /dev/null; do sleep 0.1; done
fi
mkdir \$group
sh -c "echo \\\$\$ > \$group/cgroup.procs; exec python3 $work/bin/collector" > /dev/null 2>&1 &
until ss -Hual sport = :9125 | grep -q .; do sleep 0.1; done
echo restarted
RESTART
    chmod +x "$work/bin/restart-collector"
    "$work/bin/restart-collector" > /dev/null
    PATH=$work/bin:$PATH each "" "$@"
}

# With echo-server, a server with one thread that sets no option; start-multiply, which runs `udpath multiply` in the background
# until it is ready; and kill-instance. Two instances of it run already, unless the first command starts some; for the command
# echo-server alone, one plain server.
scene_multiply() {
    mkdir -p "$work/bin"
    cat > "$work/bin/echo-server" <<'SERVER'
#!/usr/bin/env python3
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try:
    s.bind(("127.0.0.1", int(sys.argv[1])))
except OSError as error:
    sys.exit(f"echo-server: {error}")
while True:
    payload, peer = s.recvfrom(2048)
    s.sendto(payload, peer)
SERVER
    cat > "$work/bin/start-multiply" <<START
#!/bin/sh
rm -f $work/multiply
udpath multiply "\$@" > /dev/null 2> $work/multiply &
until grep -s '^ready' $work/multiply; do
    sleep 0.1
    kill -0 \$! || exit 3
done
START
    cat > "$work/bin/kill-instance" <<'KILL'
#!/bin/sh
kill -9 "$(udpath multiply echo | awk -v number="$1" '$1 == number { print $4 }')" && echo "killed instance $1"
sleep 0.05
KILL
    chmod +x "$work/bin"/*
    touch "$work/multiplied"
    case $1 in
        start-multiply*) ;;
        echo-server*) "$work/bin/echo-server" 9125 & background+=($!); sleep 1 ;;
        *) PATH=$work/bin:$PATH start-multiply echo -n 2 -- echo-server 9125 > /dev/null ;;
    esac
    PATH=$work/bin:$PATH each "" "$@"
}

# With a server of four threads, each with a socket of its own at port 9125, and one-sender, which sends it datagrams from one port and
# prints how many each thread has read.
scene_spread() {
    mkdir -p "$work/bin"
    cat > "$work/bin/readers" <<'SERVER'
import socket, sys, threading
read = [0] * 4
def serve(number, reader):
    while reader.recv(2048):
        read[number] += 1
def socket_of(number):
    reader = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reader.bind(("127.0.0.1", 9125))
    return reader
for number in range(4):
    threading.Thread(target=serve, args=(number, socket_of(number)), daemon=True).start()
asked = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
asked.bind(sys.argv[1])
asked.listen()
while True:
    client, _ = asked.accept()
    lines = [f"thread {number + 1} read {count:,}\n" for number, count in enumerate(read)]
    read[:] = [0] * 4
    client.sendall("".join(lines).encode())
    client.close()
SERVER
    cat > "$work/bin/one-sender" <<SENDER
#!/usr/bin/env python3
import socket, sys, time
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.connect(("127.0.0.1", 9125))
for number in range(int(sys.argv[1])):
    sender.send(b"record")
    # Room for the readers, which share two CPUs with it.
    time.sleep(0.0002)
time.sleep(0.5)
answer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
answer.connect("$work/readers")
print(answer.makefile().read(), end="")
SENDER
    chmod +x "$work/bin/one-sender"
    python3 "$work/bin/readers" "$work/readers" &
    background+=($!)
    until [ -S "$work/readers" ]; do sleep 0.1; done
    PATH=$work/bin:$PATH each "" "$@"
}

# On a server that runs nsd with two workers at 10.0.0.2:53.
scene_nsd() {
    command -v nsd >/dev/null || fail "nsd not found; run scripts/setup.sh"
    two_machines
    mkdir -p "$work/nsd"
    printf '$ORIGIN example.\n$TTL 60\n@ SOA ns admin 1 60 60 60 60\n@ NS ns\nns A 10.0.0.2\n' > "$work/nsd/example.zone"
    cat > "$work/nsd/nsd.conf" <<CONF
server:
    server-count: 2
    reuseport: yes
    ip-address: 10.0.0.2
    username: ""
    chroot: ""
    zonesdir: "$work/nsd"
    pidfile: "$work/nsd/nsd.pid"
    xfrdfile: "$work/nsd/xfrd.state"
    zonelistfile: "$work/nsd/zone.list"
    database: ""
    logfile: "$work/nsd/log"
remote-control:
    control-enable: no
zone:
    name: example
    zonefile: example.zone
CONF
    start server nsd -d -c "$work/nsd/nsd.conf"
    each "udpath lab exec $lab/server --" "$@"
}

# On a server that runs nsd as Debian configures it, with one process, at port 5300; the load is in names.txt, and restart-nsd
# restarts it. `docs/client` is the other machine. Its files are shown as those of /etc/nsd.
scene_own_nsd() {
    command -v nsd >/dev/null || fail "nsd not found; run scripts/setup.sh"
    two_machines
    local folder command status shown
    # Not below /tmp: udpath changes only files that nobody else can.
    folder=$(mktemp -d -p /run)
    echo "$folder" > "$work/nsd"
    {
        printf '$ORIGIN example.\n$TTL 60\n@ SOA ns admin 1 60 60 60 60\n@ NS ns\nns A 10.0.0.2\n'
        printf 'h%d A 198.18.0.1\n' {0..9999}
    } > "$folder/example.zone"
    printf 'h%d.example A\n' {0..9999} > "$folder/names.txt"
    cat > "$folder/nsd.conf" <<CONF
server:
    server-count: 1
    ip-address: 0.0.0.0@5300
    username: ""
    chroot: ""
    zonesdir: "$folder"
    pidfile: "$folder/nsd.pid"
    xfrdfile: "$folder/xfrd.state"
    zonelistfile: "$folder/zone.list"
    database: ""
    logfile: "$folder/log"
remote-control:
    control-enable: no
zone:
    name: example
    zonefile: example.zone
CONF
    cat > "$folder/restart-nsd" <<SCRIPT
#!/bin/sh
if old=\$(cat $folder/nsd.pid 2>/dev/null); then
    kill \$old
    for i in \$(seq 250); do readlink /proc/\$old/exe >/dev/null 2>&1 || break; sleep 0.02; done
fi
nsd -c $folder/nsd.conf
SCRIPT
    chmod +x "$folder/restart-nsd"
    udpath lab exec "$lab/server" -- "$folder/restart-nsd" > "$work/out" 2>&1 || fail "nsd: $(cat "$work/out")"
    for command; do
        # Several pages show the same search, which takes a minute and has other figures each time.
        shown=$work/nsd-$(cksum <<< "$command" | cut -d' ' -f1)
        if [ -s "$shown" ]; then
            print "$command" "$shown"
            continue
        fi
        status=0
        (cd "$folder" && udpath lab exec "$lab/server" -- bash -c "${command//docs\/client/$lab/client}") \
            > "$work/out" 2> "$work/err" || status=$?
        [ "$status" -le 1 ] || fail "$page: '$command' exits with $status: $(head -c 2000 "$work/err")"
        sed -i "s|$folder|/etc/nsd|g" "$work/out"
        cp "$work/out" "$shown"
        print "$command" "$work/out"
    done
    kill "$(cat "$folder/nsd.pid")"
}

# On a controller with Ansible, the collection and an inventory of twenty hosts: host07 has a setting that cuts it off. Hosts and controller
# are network namespaces, which end with their processes.
scene_ansible() {
    local folder=$work/ansible controller number name
    if [ ! -d "$folder" ]; then
        mkdir "$folder"
        ssh-keygen -q -t ed25519 -N '' -f "$folder/key"
        ssh-keygen -q -t ed25519 -N '' -f "$folder/host"
        ansible-galaxy collection install -p "$folder/collections" deploy/ansible > "$work/out" 2>&1 || fail "$(cat "$work/out")"
        cat > "$folder/ansible.cfg" <<CONFIG
[defaults]
inventory = hosts
collections_path = collections
remote_user = admin
private_key_file = $folder/key
host_key_checking = false
forks = 20
timeout = 5
interpreter_python = /usr/bin/python3
callback_result_format = yaml
[connection]
pipelining = true
[ssh_connection]
ssh_args = -C -o ControlMaster=auto -o ControlPersist=10s -o UserKnownHostsFile=/dev/null
CONFIG
        {
            for number in {01..20}; do
                echo "host$number ansible_host=10.9.0.$((10#$number))"
            done
            printf '\n[all:vars]\nudpath_settings=["eth0:rps/rx-*=0-1", "eth0:tx-queue-len=2000"]\nudpath_confirm=30\n'
        } > "$folder/hosts"
        mkdir "$folder/host_vars"
        echo 'udpath_settings: ["eth0:rps/rx-*=0-1", "eth0:qdisc=blackhole"]' > "$folder/host_vars/host07.yml"
    fi
    unshare --net sleep 600 &
    controller=$!
    background+=("$controller")
    until [ "$(readlink /proc/$controller/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
    nsenter -t "$controller" -n sh -c 'ip link add hosts type bridge; ip address add 10.9.0.254/24 dev hosts; ip link set hosts up'
    for number in {01..20}; do
        name=host$number
        unshare --net --mount --propagation slave sh -c 'mount -n -t sysfs sysfs /sys; exec "$@"' sh \
            tests/tests/beside/ansible/target.sh "$folder" "$UDPATH" > "$work/$name" 2>&1 &
        background+=($!)
        until [ "$(readlink /proc/$!/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
        ip link add "$name" netns "$controller" numrxqueues 2 numtxqueues 2 type veth peer name eth0 netns $! numrxqueues 2 numtxqueues 2
        nsenter -t "$controller" -n ip link set "$name" master hosts up
        nsenter -t $! -n sh -c "ip address add 10.9.0.$((10#$number))/24 dev eth0; ip link set eth0 up; ip link set lo up"
    done
    sleep 2
    # Not the connections of an earlier scene, which lead to its hosts.
    each "nsenter -t $controller -n env -C $folder HOME=$folder ANSIBLE_CONFIG=$folder/ansible.cfg
        ANSIBLE_SSH_CONTROL_PATH_DIR=$folder/cp-$controller" "$@"
}

# Replaces the transcripts of one page.
rewrite() {
    page=$1
    local line header commands option scene
    local -a words
    while IFS= read -r line; do
        printf '%s\n' "$line"
        case $line in "<!-- transcript "*) ;; *) continue ;; esac
        commands=()
        header=${line#<!-- transcript }
        if [[ $header == *" -->" ]]; then
            header=${header% -->}
            commands=("${header#*: }")
            header=${header%%: *}
        else
            header=${header%:}
            while IFS= read -r line && [ "$line" != "-->" ]; do
                printf '%s\n' "$line"
                commands+=("$line")
            done
            printf '%s\n' "$line"
        fi
        read -ra words <<< "$header"
        scene=${words[0]} lines='' from='' stderr='' keys=1
        for option in "${words[@]:1}"; do
            case $option in
                lines=*) lines=${option#*=} ;;
                from=*) from=${option#*=} from=${from//_/ } ;;
                keys=*) keys=${option#*=} ;;
                stderr) stderr=yes ;;
                *) fail "$page: unknown option '$option'" ;;
            esac
        done
        [ "$(type -t "scene_$scene")" = function ] || fail "$page: no scene '$scene'"
        IFS= read -r line && [[ $line == '```'* ]] || fail "$page: no block behind '$header'"
        printf '%s\n' "$line"
        echo "transcripts: $page: ${commands[0]}" >&2
        "scene_$scene" "${commands[@]}"
        stop
        while IFS= read -r line && [[ $line != '```'* ]]; do :; done
        printf '%s\n' "$line"
    done < "$page"
}

if [ "${1:-}" = --list ]; then
    exec grep -n -A3 '^<!-- transcript ' README.md $(git ls-files 'docs/*.md')
fi
[ -x "$UDPATH" ] || fail "$UDPATH not found; build it first, or set UDPATH"
inside "$@"
mkdir "$work/bin"
ln -s "$UDPATH" "$work/bin/udpath"
export PATH="$work/bin:$PATH"

# The script can fail: a command that does not exist, and one that fails.
for fault in 'udpath plan xps' 'udpath nonesuch' 'udpath show --sysroot /nonexistent'; do
    printf '<!-- transcript host: %s -->\n```\n```\n' "$fault" > "$work/fault.md"
    if (rewrite "$work/fault.md") >/dev/null 2>&1; then
        fail "does not fail on '$fault'"
    fi
done

if [ $# -eq 0 ]; then
    mapfile -t pages < <(grep -l '^<!-- transcript ' README.md $(git ls-files 'docs/*.md'))
else
    pages=("$@")
fi
for page in "${pages[@]}"; do
    rewrite "$page" > "$work/page.md"
    cat "$work/page.md" > "$page"
done
