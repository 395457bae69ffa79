mod coordinator;
mod scenarios;
mod world;
