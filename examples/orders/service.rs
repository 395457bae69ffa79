//! The service itself: a typed payload and a handler.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use kafka_harbor::harbor::{Context, Failure};
use serde::{Deserialize, Serialize};

use crate::narrator::Narrator;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) sku: String,
    pub(crate) quantity: u32,
}

impl Order {
    pub(crate) fn new(sku: &str, quantity: u32) -> Self {
        Self { sku: sku.to_owned(), quantity }
    }
}

/// Why an order could not be reserved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReserveError {
    #[error("the warehouse is busy")]
    WarehouseBusy,
    #[error("no {0:?} in the catalogue")]
    UnknownProduct(String),
}

/// Reserves what is ordered.
#[derive(Debug, Clone)]
pub(crate) struct Warehouse {
    catalogue: Arc<Mutex<HashSet<String>>>,
    narrator: Narrator,
}

impl Warehouse {
    pub(crate) fn new(narrator: Narrator) -> Self {
        let catalogue = ["tea", "coffee"].map(str::to_owned).into();
        Self { catalogue: Arc::new(Mutex::new(catalogue)), narrator }
    }

    pub(crate) fn stock(&self, sku: &str) {
        self.catalogue.lock().unwrap_or_else(PoisonError::into_inner).insert(sku.to_owned());
    }

    /// The handler. `Ok` commits the order; an error sends it up the retry ladder, and from its end to the dead letters.
    pub(crate) async fn reserve(self, order: Order, context: Context) -> Result<(), Failure> {
        self.narrator.attempt(&order, &context);
        if order.sku == "coffee" && context.attempt() == 1 {
            return Err(Failure::new(ReserveError::WarehouseBusy));
        }
        let known = self.catalogue.lock().unwrap_or_else(PoisonError::into_inner).contains(&order.sku);
        if known { Ok(()) } else { Err(Failure::new(ReserveError::UnknownProduct(order.sku))) }
    }
}
