//! Providers of this installation.

mod ec2;
mod inventory;
mod netns;
mod netns_network;
mod process;
mod process_end;
mod sim;
mod slot_files;

pub use ec2::Ec2Provider;
pub use inventory::InventoryProvider;
pub use netns::NetnsProvider;
pub use process::ProcessProvider;
pub use sim::SimProvider;
