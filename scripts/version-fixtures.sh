#!/usr/bin/env bash
# scripts/version-fixtures.sh [PROGRAM]: keeps what this version of the program writes, as tests/fixtures/VERSION, for later versions to
# read. Run once per release, as root; PROGRAM is the released one, or target/release/udpath. tests/fixtures/README.md says what is in it.
#
# All of it is real: a server, its load, a climb and a profile in a lab; applies, one of them undone; a policy; a capture. It runs with a
# root, an /etc, a host name and process numbers of its own, and with a boot ID that no machine has: to every reader the applies are of
# an earlier boot, and the results of another machine.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "version-fixtures: $*" >&2; exit 1; }

if [ "${UDPATH_VERSION_FIXTURES:-}" != inside ]; then
    program=$(realpath "${1:-target/release/udpath}")
    version=$("$program" --version | cut -d ' ' -f 2)
    folder=tests/fixtures/${version%.*}
    [ ! -e "$folder" ] || fail "$folder is there already: what a version wrote never changes"
    mkdir -p "$folder"
    UDPATH_VERSION_FIXTURES=inside exec unshare --uts --pid --fork --mount-proc \
        scripts/fresh-root.sh scripts/version-fixtures.sh "$program" "$folder"
fi

folder=$2
# Written into a unit: the path of an installed program.
u=/usr/local/bin/udpath
mkdir /run/bin /run/etc
cp "$1" /run/bin/udpath
mount --bind /run/bin /usr/local/bin
cp -a /etc/. /run/etc
mount --bind /run/etc /etc
hostname fixture
boot=$(mktemp)
echo 00000000-0000-4000-8000-000000000000 > "$boot"
mount --bind "$boot" /proc/sys/kernel/random/boot_id
lab=kept$$
group=/udpath-fixture.slice/collector.service
cgroups=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
state=/var/lib/udpath/journal
reason="kept for later versions"
said=$(mktemp)
server=
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    "$u" policy remove $group 2>/dev/null || true
    rmdir "$cgroups$group" "$cgroups${group%/*}" 2>/dev/null || true
    "$u" lab down $lab 2>/dev/null || true
}
trap finish EXIT

"$u" lab up $lab --queues 2 --machines client,server > /dev/null
client() { "$u" lab exec $lab/client -- "$@"; }
netns=$(ip netns list | grep -o "udpath-[0-9]*-$lab-server")
at=10.0.0.2:7
"$u" lab exec $lab/server -- "$u" serve echo --bind $at --json > "$folder/serve.json" 2> "$said" & server=$!
until grep -q ready "$said"; do
    kill -0 $server || fail "the server did not start: $(cat "$said")"
    sleep 0.1
done

# Results. Two loads of one kind, and two profiles, to be compared.
for number in 1 2; do
    client "$u" load echo $at --flows 16 --rate 5k -d 1s --json > "$folder/load-$number.json"
    client "$u" load echo $at --flows 16 -d 6s > /dev/null 2>&1 & load=$!
    "$u" profile --port 7 --netns "$netns" -d 2s --json > "$folder/profile-$number.json" || [ $? -eq 1 ]
    wait $load
done
start=$(date -u -d '+2 seconds' +%FT%TZ)
for number in 1 2; do
    client "$u" load echo $at --flows 16 --rate 5k -d 1s --segment $number/2 --start-at "$start" --json > "$folder/segment-$number.json" &
    segments+=($!)
done
wait "${segments[@]}"
"$u" boost --lab --io shared,reuseport --duration 50ms --bound 50 --blocks 5 --json > "$folder/boost.json" || [ $? -eq 1 ]
for name in load-1 boost profile-1; do
    "$u" history add --store "$folder/history.db" --name kept "$folder/$name.json"
done

"$u" plan --netns "$netns" --json --set eth0:rps/rx-0=0 --set eth0:tx-queue-len=600 > "$folder/plan.json"

# The journal: an apply that is undone, one that stays, and one of a policy that boots keep.
apply() { "$u" lab exec $lab/server -- "$u" apply --reason "$reason" "$@"; }
apply --set eth0:rps/rx-0=0-1 --set eth0:tx-queue-len=500
"$u" lab exec $lab/server -- "$u" undo 1
apply --set eth0:rps/rx-1=0-1 --set eth0:xps/tx-0=0
mkdir -p "$cgroups$group"
"$u" policy set $group receive-buffer=100000 reuseport=on --persist --reason "$reason"
"$u" policy list --json > "$folder/policy.json"
"$u" status --json > "$folder/status.json" || [ $? -eq 1 ]
cp -r $state "$folder/journal"
rm -f "$folder/journal/lock"
# What the policy leaves for boots.
find /etc -newer "$boot" -type f -path '*udpath*' -exec cp --parents {} "$folder" \;

# The machine of the server.
"$u" show --json --netns "$netns" > "$folder/map.json" || [ $? -eq 1 ]
"$u" support --netns "$netns" -o "$folder/capture.tar.gz"
kill $server
wait $server || true
server=
