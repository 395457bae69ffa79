use proptest::prelude::*;

use super::*;
use crate::adapter::AdapterErrorKind;

#[derive(Debug, thiserror::Error)]
#[error("bad sku {0}")]
struct ValidationError(String);

impl Classify for ValidationError {
    fn retryable(&self) -> Option<bool> {
        Some(false)
    }

    fn code(&self) -> Option<Cow<'static, str>> {
        Some("BAD_SKU".into())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("order {id} refused")]
struct OrderError<E: Error + 'static> {
    id: u32,
    source: E,
}

fn sku() -> ValidationError {
    ValidationError("é".into())
}

fn known() -> Classifiers {
    let mut classifiers = Classifiers::default();
    classifiers.add::<ValidationError>();
    classifiers
}

/// Stands for a handler: the kind of its error is inferred.
fn returned<E: IntoFailure<Kind>, Kind>(result: Result<(), E>) -> Failure {
    result.unwrap_err().into_failure()
}

#[test]
fn any_error_is_a_failure_named_after_its_type() {
    assert_eq!(returned(Err(sku())).name(), "ValidationError");
    assert_eq!(returned(Err(OrderError { id: 1, source: sku() })).name(), "OrderError");
    assert_eq!(returned(Err(Box::new(sku()))).name(), "ValidationError");
    assert_eq!(returned(Err(BoxError::from(sku()))).name(), "Error");
    assert_eq!(returned(Err("bad")).name(), "Error");
    assert_eq!(returned(Err(String::from("bad"))).to_string(), "bad");
    assert_eq!(returned(Err(HarborError::Closed { what: "the harbor" })).name(), "ClosedError");
}

#[test]
fn what_says_nothing_is_retryable() {
    let failure = returned(Err(sku()));
    assert_eq!((failure.says_retryable(), failure.is_retryable(), failure.code()), (None, true, None));
}

#[test]
fn registered_types_are_found_anywhere_along_the_chain() {
    for failure in [
        returned(Err(sku())),
        returned(Err(OrderError { id: 1, source: sku() })),
        returned(Err(BoxError::from(OrderError { id: 1, source: OrderError { id: 2, source: sku() } }))),
    ] {
        let failure = failure.classified(&known());
        let facts = (failure.name(), failure.is_retryable(), failure.code());
        assert_eq!(facts, ("ValidationError", false, Some("BAD_SKU")));
        assert_eq!(failure.downcast_ref::<ValidationError>().unwrap().0, "é");
    }
}

#[test]
fn marks_are_recognised_in_the_chain_without_registration() {
    let inner = Failure::permanent(sku()).named("Rejected").with_code("R1");
    let failure = returned(Err(OrderError { id: 7, source: inner })).classified(&known());
    assert_eq!((failure.name(), failure.is_retryable(), failure.code()), ("Rejected", false, Some("R1")));
    assert!(failure.downcast_ref::<ValidationError>().is_some());
}

#[test]
fn the_outermost_word_counts() {
    let failure = Failure::retryable(OrderError { id: 7, source: Failure::permanent(sku()) });
    assert!(failure.is_retryable());
    let failure = failure.classified(&known());
    assert!(failure.is_retryable());
    assert_eq!(failure.code(), Some("BAD_SKU"));
}

#[test]
fn a_failure_that_passes_through_a_handler_is_itself() {
    let failure = returned(Err(Failure::abort("stop")));
    assert!(failure.is_abort() && failure.is_retryable());
    assert_eq!(failure.cause().to_string(), "stop");
    let failure = returned(Err(BoxError::from(Failure::abort("stop"))));
    assert!(failure.is_abort());
}

#[test]
fn abort_is_recognised_by_its_code_alone() {
    assert!(Failure::new(sku()).with_code("ABORT_PROCESSING").is_abort());
    assert!(!Failure::new(sku()).is_abort());
}

#[test]
fn the_harbors_own_errors_speak_for_themselves() {
    let down = || AdapterError::new("memory", AdapterErrorKind::Unavailable, "down");
    let refused = || AdapterError::new("memory", AdapterErrorKind::Refused, "no");
    let table = [
        (returned(Err(down())), code::ADAPTER, true),
        (returned(Err(OrderError { id: 1, source: refused() })), code::ADAPTER, false),
        (returned(Err(SerializationError::serializing("orders", "no"))), code::SERIALIZATION, false),
        (returned(Err(HarborError::from(down()))), code::ADAPTER, true),
    ];
    for (failure, code, retryable) in table {
        assert_eq!((failure.code(), failure.is_retryable()), (Some(code), retryable), "{failure:?}");
    }
}

#[test]
fn timeouts_and_panics_walk_the_ladder() {
    let failure = Failure::timed_out(Duration::from_secs(300));
    assert_eq!((failure.code(), failure.is_retryable()), (Some(code::PROCESSING_TIMEOUT), true));
    let panic = guard::call(|| panic!("no stock of {}", 5)).unwrap_err();
    let failure = Failure::panicked(&panic);
    assert_eq!((failure.code(), failure.is_retryable()), (Some(code::PANIC), true));
    assert_eq!(failure.last_error(TextForm::Bytes), "Panic: no stock of 5");
}

#[test]
fn text_has_the_name_unless_it_says_nothing_new() {
    #[derive(Debug, thiserror::Error)]
    #[error("Shortage of {0}")]
    struct Shortage(&'static str);

    for form in [TextForm::Bytes, TextForm::Node] {
        assert_eq!(Failure::new(sku()).last_error(form), "ValidationError: bad sku é");
        assert_eq!(Failure::new("bad sku").last_error(form), "bad sku");
        assert_eq!(Failure::new(Shortage("rye")).last_error(form), "Shortage of rye");
        assert_eq!(Failure::new(sku()).named("Error").last_error(form), "bad sku é");
        assert_eq!(Failure::new("").named("Empty").last_error(form), "Empty: ");
    }
}

#[test]
fn text_tells_the_sources_unless_node_has_to_read_the_same() {
    let failure = Failure::new(OrderError { id: 7, source: sku() });
    assert_eq!(failure.last_error(TextForm::Bytes), "OrderError: order 7 refused: bad sku é");
    assert_eq!(failure.last_error(TextForm::Node), "OrderError: order 7 refused");
    // A message that repeats its source's says it once.
    let failure = Failure::new(SerializationError::serializing("orders", "no"));
    assert_eq!(failure.last_error(TextForm::Bytes), "SerializationError: cannot serialize a payload for `orders`: no");
}

#[test]
fn long_text_is_cut_at_a_character() {
    let text = |failure: &Failure, form| failure.last_error(form);
    let accents = Failure::new("é".repeat(1_025));
    assert_eq!(text(&accents, TextForm::Bytes), format!("{}...", "é".repeat(510)));
    assert_eq!(text(&accents, TextForm::Node), format!("{}...", "é".repeat(1_021)));
    // 1,024 units are whole in Node's form though they are 2,048 bytes.
    assert_eq!(text(&Failure::new("é".repeat(1_024)), TextForm::Node), "é".repeat(1_024));
    assert_eq!(text(&Failure::new("x".repeat(1_024)), TextForm::Bytes), "x".repeat(1_024));
    // Node would cut the emoji in two here.
    let emoji = Failure::new(format!("{}😀{}", "x".repeat(1_020), "y".repeat(10)));
    assert_eq!(text(&emoji, TextForm::Node), format!("{}...", "x".repeat(1_020)));
}

/// The Node package was given this error, and wrote this header, on a real broker.
#[test]
fn a_long_text_is_cut_as_the_node_package_cuts_it() {
    let golden: serde_json::Value =
        serde_json::from_str(include_str!("../../../tests/golden/node-ladder.json")).unwrap();
    let case = golden["cases"].as_array().unwrap().iter().find(|case| case["case"] == "long error").unwrap();
    let headers = case["records"][1]["headers"].as_array().unwrap();
    let written = headers.iter().find(|header| header[0] == "x-last-error").unwrap();
    assert_eq!(Failure::new("é".repeat(1_500)).last_error(TextForm::Node), written[1].as_str().unwrap());
}

proptest! {
    #[test]
    fn text_never_exceeds_its_bound(message in "[\\PC\\x00-\\x1f😀é]{0,2000}") {
        let failure = Failure::new(message.as_str()).named("N");
        prop_assert!(failure.last_error(TextForm::Bytes).len() <= 1_024);
        prop_assert!(failure.last_error(TextForm::Node).encode_utf16().count() <= 1_024);
    }
}

#[cfg(feature = "anyhow")]
mod with_anyhow {
    use anyhow::Context;

    use super::*;

    #[test]
    fn the_type_beneath_is_reached() {
        let failure = returned(Err(anyhow::Error::new(sku()))).classified(&known());
        assert_eq!((failure.name(), failure.is_retryable()), ("ValidationError", false));
        let failure = returned(Err::<(), _>(sku()).context("placing order 7")).classified(&known());
        assert_eq!((failure.name(), failure.is_retryable()), ("ValidationError", false));
        assert_eq!(failure.last_error(TextForm::Bytes), "ValidationError: placing order 7: bad sku é");
        assert_eq!(failure.downcast_ref::<ValidationError>().unwrap().0, "é");
    }

    #[test]
    fn a_typed_context_is_reached() {
        let failure = returned(Err(anyhow::anyhow!("down").context(sku()))).classified(&known());
        assert_eq!(failure.code(), Some("BAD_SKU"));
    }

    #[test]
    fn marks_survive_question_marks_and_contexts() {
        fn handler() -> anyhow::Result<()> {
            Err(Failure::abort("stop"))?;
            Ok(())
        }
        assert!(returned(handler()).is_abort());
        let failure = returned(handler().context("while stopping"));
        assert!(failure.is_abort());
        assert_eq!(failure.to_string(), "while stopping");
    }
}
