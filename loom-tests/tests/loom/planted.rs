//! Checks that each guarantee's model can fail: this test binary runs the model again with one planted bug,
//! and the model must fail with the expected assertion.
//!
//! `POD_INDEX_PLANTED=<bug> cargo test ...` shows a single bug.

use std::process::Command;
use std::time::Instant;

/// Runs `model` with `bug`, and panics unless it fails with the message `because`. Two preemptions are enough
/// for most.
#[track_caller]
fn caught(bug: &str, model: &str, because: &str) {
    caught_within(2, bug, model, because);
}

#[track_caller]
fn caught_within(preemptions: usize, bug: &str, model: &str, because: &str) {
    let started = Instant::now();
    let output = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", model, "--nocapture"])
        .env("POD_INDEX_PLANTED", bug)
        .env("LOOM_MAX_PREEMPTIONS", preemptions.to_string())
        .env("RUST_BACKTRACE", "0")
        .output()
        .expect("this test runs");
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(said.contains("running 1 test"), "there is no model {model}:\n{said}");
    assert!(!output.status.success(), "{model} passes with {bug}");
    assert!(said.contains(because), "{model} with {bug} fails for another reason:\n{said}");
    let execution = said.lines().find(|line| line.contains("FAILED in")).unwrap_or(model);
    println!("caught: {bug}: {execution}; {:.2} s in all", started.elapsed().as_secs_f64());
}

/// The index is published in two steps instead of one.
#[test]
fn two_swaps_are_caught() {
    caught("two-swaps", "models::every_read_sees_all_indices_of_one_generation", "do not belong together");
}

/// A reader takes half of a result from one snapshot and half from the next.
#[test]
fn a_double_load_is_caught() {
    caught("double-load", "models::small_every_read_sees_all_indices_of_one_generation", "share a full name");
    for model in [
        "models::every_read_sees_all_indices_of_one_generation",
        "models::a_mirror_and_its_static_pod_share_a_full_name_in_every_snapshot",
    ] {
        // From the writer to the reader, back, and to the reader again.
        caught_within(3, "double-load", model, "share a full name");
    }
}

/// The writer's swap has no release ordering.
#[test]
fn a_relaxed_publish_is_caught() {
    caught("relaxed-publish", "models::every_publication_is_seen_whole", "Causality violation");
}

/// A reader's load has no acquire ordering.
#[test]
fn a_relaxed_load_is_caught() {
    caught("relaxed-load", "models::every_publication_is_seen_whole", "Causality violation");
}

/// The new state is published, then the old one, then the new one again.
#[test]
fn a_publication_that_flickers_is_caught() {
    // From the writer to the reader, back, and to the reader again.
    caught_within(3, "publishes-in-passing", "models::generations_never_go_back", "back to");
}

/// A cached reader reads the current number after the value, not with it, so it may take an old value for the
/// current one.
#[test]
fn a_cache_that_mistakes_an_old_value_for_the_current_one_is_caught() {
    caught("number-after-value", "models::generations_never_go_back", "back to");
    caught(
        "number-after-value",
        "models::small_a_reader_made_during_a_publication_does_not_lag_behind",
        "back from",
    );
}

/// The writer does not check whether readers hold what it drops.
#[test]
fn freeing_without_asking_is_caught() {
    caught(
        "frees-without-asking",
        "retire::small_no_reader_frees_what_it_held_by_a_guard",
        "Causality violation",
    );
    caught(
        "frees-without-asking",
        "retire::no_reader_frees_what_two_of_them_held_by_guards",
        "Causality violation",
    );
    caught("frees-without-asking", "retire::no_reader_frees_what_it_kept_or_remembered", "a reader freed");
}

/// Nodes that a new version does not have are freed immediately, although the previous version is held.
#[test]
fn freeing_nodes_that_a_held_version_has_is_caught() {
    caught(
        "frees-nodes-at-once",
        "retire::no_reader_frees_what_it_kept_or_remembered",
        "a node is read after it was freed",
    );
}

/// The swap frees what it replaces, even if it is held.
#[test]
fn freeing_what_a_guard_still_holds_is_caught() {
    caught("frees-at-once", "retire::small_no_reader_frees_what_it_held_by_a_guard", "Causality violation");
    caught("frees-at-once", "models::small_readers_outlive_the_writer", "read after it was freed");
}

/// The writer never finds that it holds the only reference.
#[test]
fn a_retire_queue_that_only_grows_is_caught() {
    caught(
        "never-frees",
        "retire::small_no_reader_frees_what_it_held_by_a_guard",
        "left in the retire queue",
    );
}

/// When the writer is dropped, readers free what they hold.
#[test]
fn leaving_the_freeing_to_readers_when_the_writer_goes_is_caught() {
    caught(
        "forgets-leftovers",
        "retire::what_a_reader_holds_when_the_writer_goes_is_freed_with_the_last_handle",
        "a reader freed",
    );
}

/// Two callers check whether a pod exists, and then both add it.
#[test]
fn looking_before_adding_is_caught() {
    caught(
        "look-then-add",
        "models::small_two_callers_of_a_manager_write_and_no_write_is_lost",
        "the first to add",
    );
}

/// The writer does not check whether a follower sleeps.
#[test]
fn a_writer_that_wakes_no_follower_is_caught() {
    caught("calls-nobody", "follow::no_publication_is_slept_through", "deadlock");
    caught("calls-nobody", "follow::a_follower_waiting_for_a_pod_is_woken_when_it_is_added", "deadlock");
}

/// A publication between the check of the index and falling asleep is missed.
#[test]
fn falling_asleep_without_looking_again_is_caught() {
    caught("sleeps-without-looking-again", "follow::no_publication_is_slept_through", "deadlock");
}

/// A follower that falls asleep between the two is neither on the list being woken nor marked for the next
/// publication.
#[test]
fn clearing_the_mark_after_the_list_was_taken_is_caught() {
    caught_within(
        3,
        "clears-after-taking",
        "follow::a_follower_that_falls_asleep_while_another_is_woken_is_woken_too",
        "deadlock",
    );
}

/// Followers are not told that the writer is dropped.
#[test]
fn a_writer_dropped_without_waking_followers_is_caught() {
    caught(
        "goes-in-silence",
        "follow::the_last_publication_is_seen_and_then_that_the_writer_is_gone",
        "deadlock",
    );
}
