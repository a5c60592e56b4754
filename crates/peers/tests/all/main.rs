//! Links over real sockets: what they promise, what strangers get, what a message costs.

mod cost;
mod hostile;
mod links;
mod world;
