//go:build tools

package main

// Names the server's package, so that go.mod pins it with its libraries.
import _ "go.etcd.io/etcd/server/v3/etcdmain"
