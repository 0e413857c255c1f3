namespace cpp rpc_peer_thrift
service Echo { i64 plus(1: i64 number) }
