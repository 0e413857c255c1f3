@0xd6a1c9f0b7e35142;
using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("rpc_peer_capnp");
interface Echo { plus @0 (number :UInt64) -> (number :UInt64); }
