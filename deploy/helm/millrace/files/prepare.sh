#!/bin/sh
# Makes the directory of a node in its volume, once. It runs before each start of a pod.
#
# POD_NAME, such as millrace-0, says which node this is; PEERS names the Service of the pods.
# The folders are arguments: the archives of `millrace cluster init`, the settings, the volume.
set -eu
archives=$1 settings=$2 volume=$3
node=$((${POD_NAME##*-} + 1))
directory=$volume/node
new=$volume/unfinished

refuse() {
    echo "prepare: $*" >&2
    exit 1
}

# The cluster's id and the node's number, without those of the members, which stand further to the right.
identity() { grep -E '^  "(cluster|node)": ' "$1/cluster.json"; }

rm -rf "$new"
mkdir "$new"
tar -xf "$archives/n$node.tar" -C "$new" || refuse "the Secret of nodes has no usable n$node.tar"
identity "$new" | grep -q "\"node\": $node," || refuse "n$node.tar is the directory of another node"

# The node's own data is newer than what init has made, always.
if [ -e "$directory" ]; then
    [ "$(identity "$directory")" = "$(identity "$new")" ] ||
        refuse "the volume has a node of another cluster than the Secret of nodes: put the old Secret back, or delete the volume"
    rm -rf "$new"
    exit 0
fi

# A node that has forgotten what it promised to the others must not take part as if it were new. So an empty volume is a
# new node only while the operator says so, and for a day after `init`: an operator may forget to take it back.
if [ "$(cat "$settings/first-start")" = true ]; then
    [ -z "$(find "$new/node.json" -mmin +1440)" ] ||
        refuse "n$node.tar is older than a day. If the cluster has ever served, set firstStart to false; else make the archives anew"
else
    echo "prepare: the volume is empty and firstStart is false: this node gets everything from the others"
    millrace cluster reset "$new"
fi

# A pod keeps its name, and not its address.
for port in 8080 7000; do
    grep -qF "\"$POD_NAME.$PEERS:$port\"" "$new/cluster.json" ||
        refuse "init was not given $POD_NAME.$PEERS:$port for this node: see the guide"
done

sync -f "$volume"
mv "$new" "$directory"
sync -f "$volume"
