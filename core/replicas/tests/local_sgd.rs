//! LocalSGD and DiLoCo over replicas that are threads, against what the papers say, in 64 bits.
#![allow(clippy::unwrap_used)]

mod common;

use common::{LIMIT, lighthouse, lighthouse_at, options, own_address, until};
use polyrank_replicas::local_sgd::{
    Diloco, DilocoOptions, LocalSgd, OuterOptimizer, OuterSgd, Real, SyncOutcome,
};
use polyrank_replicas::{Manager, ManagerError, StateError};

/// Odd, and more than one block of 256 that has a scale of its own.
const COUNT: usize = 301;

fn first() -> Vec<f64> {
    (0..COUNT).map(|at| (at as f64 * 0.37).sin()).collect()
}

/// What a replica takes from a parameter in an inner step, counted from 1.
fn change(replica: usize, step: u32, at: usize) -> f64 {
    ((replica + 1) as f64 * 0.7 + f64::from(step) * 1.3 + at as f64 * 0.11).sin() / 8.0
}

fn inner<T: Real>(replica: usize, step: u32, parameters: &mut [T]) {
    let changed = parameters.iter_mut().enumerate();
    changed.for_each(|(at, it)| *it = *it - T::from_f64(change(replica, step, at)));
}

/// Runs `body` as so many replicas, all of which are there from the first step on.
fn replicas<R: Send>(
    count: usize,
    is_async: bool,
    body: impl Fn(usize, &Manager) -> R + Sync,
) -> Vec<R> {
    let lighthouse = lighthouse(count);
    let (body, lighthouse) = (&body, &lighthouse);
    std::thread::scope(|scope| {
        let start = |replica: usize| {
            scope.spawn(move || {
                let mut options = options(lighthouse, &format!("replica-{replica}"));
                options = options.use_async_quorum(is_async).quorum_timeout(LIMIT);
                options.min_replica_size = count as u32;
                let manager = Manager::new(options).unwrap();
                let outcome = body(replica, &manager);
                manager.shutdown().unwrap();
                outcome
            })
        };
        let started: Vec<_> = (0..count).map(start).collect();
        started.into_iter().map(|it| it.join().unwrap()).collect()
    })
}

fn near<T: Real + Into<f64>>(found: &[T], wanted: &[f64], limit: f64) {
    assert_eq!(found.len(), wanted.len());
    for (at, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let off = ((*found).into() - wanted).abs();
        assert!(off < limit, "{at}: {found:?}, not {wanted}");
    }
}

fn local_sgd<T: Real + Into<f64>>(count: usize, is_async: bool, limit: f64) {
    let all = replicas(count, is_async, |replica, manager| {
        let mut model: Vec<T> = first().into_iter().map(T::from_f64).collect();
        let mut layer = LocalSgd::new(manager, &model, 3).unwrap();
        layer.join(&mut model).unwrap();
        for step in 1..=7 {
            inner(replica, step, &mut model);
            let due = if step % 3 == 0 { SyncOutcome::Committed } else { SyncOutcome::NotDue };
            assert_eq!(layer.step(&mut model).unwrap(), due, "{:?}", manager.errored());
        }
        (layer.shared_parameters(), model)
    });
    let mut kept = first();
    for begin in [1, 4] {
        for (at, it) in kept.iter_mut().enumerate() {
            let end =
                |replica| *it - (0..3).map(|step| change(replica, begin + step, at)).sum::<f64>();
            *it = (0..count).map(end).sum::<f64>() / count as f64;
        }
    }
    for (replica, (shared, model)) in all.iter().enumerate() {
        assert_eq!(*shared, all[0].0);
        near(shared, &kept, limit);
        // The seventh step is one of its own.
        let local = kept.iter().enumerate().map(|(at, it)| it - change(replica, 7, at));
        near(model, &local.collect::<Vec<_>>(), limit);
    }
}

#[test]
fn local_sgd_is_a_mean() {
    for count in 1..=3 {
        local_sgd::<f64>(count, true, 1e-12);
        local_sgd::<f32>(count, false, 1e-5);
    }
}

/// The shared parameters, and those of each replica.
fn expected(count: usize, steps: u32, options: &DilocoOptions) -> (Vec<f64>, Vec<Vec<f64>>) {
    let all = 0..COUNT;
    let parts = match &options.fragments[..] {
        [] => std::slice::from_ref(&all),
        parts => parts,
    };
    let interval = options.sync_every / parts.len() as u32;
    let (delay, alpha) = (options.fragment_sync_delay, options.fragment_update_alpha);
    let (mut kept, mut local) = (first(), vec![first(); count]);
    let (mut velocity, mut gradient) = (vec![0.0; COUNT], vec![0.0; COUNT]);
    for step in 1..=steps {
        for (replica, model) in local.iter_mut().enumerate() {
            inner(replica, step, model);
        }
        // The replicas joined in the manager's first step.
        let part = ((step - 1) / interval + 1) as usize % parts.len();
        let place = (step - 1) % interval + 1;
        for at in parts[part].clone() {
            if place == interval - delay {
                let sum: f64 = local.iter().map(|model| kept[at] - model[at]).sum();
                gradient[at] = sum / count as f64;
            }
            if place == interval {
                velocity[at] = 0.9 * velocity[at] + gradient[at];
                kept[at] -= 0.7 * (gradient[at] + 0.9 * velocity[at]);
                for model in &mut local {
                    model[at] = (1.0 - alpha) * kept[at] + alpha * model[at];
                }
            }
        }
    }
    (kept, local)
}

fn diloco<T: Real + Into<f64>>(count: usize, is_async: bool, options: &DilocoOptions, limit: f64) {
    const STEPS: u32 = 13;
    let all = replicas(count, is_async, |replica, manager| {
        let mut model: Vec<T> = first().into_iter().map(T::from_f64).collect();
        let outer = OuterSgd::default();
        let mut layer = Diloco::new(manager, &model, outer, options.clone()).unwrap();
        layer.join(&mut model).unwrap();
        for step in 1..=STEPS {
            inner(replica, step, &mut model);
            let outcome = layer.step(&mut model).unwrap();
            assert_ne!(outcome, SyncOutcome::Lost, "{:?}", manager.errored());
        }
        (layer.shared_parameters(), model)
    });
    let (kept, local) = expected(count, STEPS, options);
    for ((shared, model), local) in all.iter().zip(&local) {
        assert_eq!(*shared, all[0].0);
        near(shared, &kept, limit);
        near(model, local, limit);
    }
}

#[test]
fn diloco_is_an_outer_step() {
    for count in 1..=3 {
        diloco::<f64>(count, false, &DilocoOptions::new(4), 1e-12);
        diloco::<f32>(count, true, &DilocoOptions::new(4), 1e-5);
    }
}

#[test]
fn fragments_come_one_after_the_other_while_training_goes_on() {
    for (delay, alpha) in [(0, 0.0), (1, 0.25), (1, 1.0)] {
        let options = DilocoOptions::new(6).fragments([0..100, 100..COUNT]);
        let options = options.fragment_sync_delay(delay).fragment_update_alpha(alpha);
        diloco::<f64>(2, delay == 0, &options, 1e-12);
    }
}

#[test]
fn what_is_quantized_is_within_bounds() {
    // A change of half at most, of 127 steps, in each of three outer steps with their momentum.
    diloco::<f32>(3, false, &DilocoOptions::new(4).should_quantize(true), 0.05);
    let exact = std::panic::catch_unwind(|| {
        diloco::<f32>(3, false, &DilocoOptions::new(4).should_quantize(true), 1e-5);
    });
    assert!(exact.is_err(), "nothing was quantized");
}

/// What replicas have that train until they are at a step with so many of them: a hash for each.
fn train(manager: &Manager, model: &mut [f64], step: i64, size: u32) -> Vec<(i64, Vec<f64>, u32)> {
    let mut layer =
        Diloco::new(manager, model, OuterSgd::default(), DilocoOptions::new(2)).unwrap();
    layer.join(model).unwrap();
    let (mut found, mut inner_step, mut lost) = (Vec::new(), 0, 0);
    until(|| {
        inner_step += 1;
        inner(manager.replica_id().len() + inner_step as usize, inner_step, model);
        match layer.step(model).unwrap() {
            SyncOutcome::NotDue => return false,
            SyncOutcome::Lost => {
                lost += 1;
                assert_eq!(*model, layer.shared_parameters());
            }
            SyncOutcome::Committed => {
                found.push((manager.current_step(), layer.shared_parameters(), lost));
            }
        }
        manager.current_step() >= step && manager.num_participants() == size
    });
    found
}

#[test]
fn one_that_dies_costs_an_outer_step_and_a_new_one_takes_what_is_shared() {
    for is_async in [true, false] {
        let lighthouse = lighthouse(2);
        let manager = |name: &str| {
            let mut options = options(&lighthouse, name).use_async_quorum(is_async);
            options.min_replica_size = 1;
            Manager::new(options.quorum_timeout(LIMIT)).unwrap()
        };
        let (stays, dies) = (manager("stays"), manager("dies"));
        let (kept, other) = std::thread::scope(|scope| {
            let dying = scope.spawn(|| {
                train(&dies, &mut [5.0; 9], 6, 2);
                // As a process that is killed.
                drop(dies);
                let anew = manager("anew");
                let found = train(&anew, &mut [7.0; 9], 12, 2);
                anew.shutdown().unwrap();
                found
            });
            let found = train(&stays, &mut [3.0; 9], 12, 2);
            stays.shutdown().unwrap();
            (found, dying.join().unwrap())
        });
        assert!(kept.last().unwrap().2 <= 1, "so many were lost: {}", kept.last().unwrap().2);
        let both = other.iter().map(|(step, shared, _)| {
            let ours = kept.iter().find(|(it, ..)| it == step);
            ours.map(|(_, ours, _)| assert_eq!(ours, shared, "step {step}"))
        });
        assert!(both.flatten().count() > 2);
    }
}

#[test]
fn without_a_quorum_a_round_is_lost() {
    let lighthouse = lighthouse_at(own_address(), 1);
    let alone = options(&lighthouse, "first").max_retries(1).quorum_timeout(common::SHORT);
    let first = Manager::new(alone).unwrap();
    let mut local = vec![0.0; 2];
    let mut sgd = LocalSgd::new(&first, &local, 1).unwrap();
    sgd.join(&mut local).unwrap();
    drop(lighthouse);
    local[0] += 1.0;
    assert_eq!(sgd.step(&mut local).unwrap(), SyncOutcome::Lost);
    // It goes on from where it is.
    assert_eq!(local, [1.0, 0.0]);
    let error = sgd.step(&mut [0.0; 2]).unwrap_err();
    assert!(matches!(error, ManagerError::TooManyFailures { .. }), "{error}");

    let lighthouse = lighthouse_at(own_address(), 1);
    let alone = options(&lighthouse, "second").quorum_timeout(common::SHORT);
    let second = Manager::new(alone).unwrap();
    let (mut shared, plain) = (vec![0.0; 2], OuterSgd::default());
    let mut diloco = Diloco::new(&second, &shared, plain, DilocoOptions::new(1)).unwrap();
    diloco.join(&mut shared).unwrap();
    drop(lighthouse);
    shared[0] += 1.0;
    assert_eq!(diloco.step(&mut shared).unwrap(), SyncOutcome::Lost);
    // What it has is what is shared.
    assert_eq!(shared, [0.0, 0.0]);
}

/// A step of one against the sign.
struct Sign;

impl OuterOptimizer<f32> for Sign {
    fn step(&mut self, _: usize, parameters: &mut [f32], gradient: &[f32]) {
        let signs = gradient.iter().map(|slope| slope.signum());
        parameters.iter_mut().zip(signs).for_each(|(parameter, sign)| *parameter -= sign);
    }

    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    fn load(&mut self, _: &[u8]) -> Result<(), StateError> {
        Ok(())
    }
}

#[test]
fn an_outer_optimizer_of_ones_own_and_the_end_of_training() {
    replicas(1, true, |_, manager| {
        let mut model = vec![0.0_f32; 2];
        let options = DilocoOptions::new(3).fragment_sync_delay(2);
        let mut layer = Diloco::new(manager, &model, Sign, options).unwrap();
        layer.join(&mut model).unwrap();
        assert_eq!(layer.end(&mut model).unwrap(), SyncOutcome::NotDue);
        model.copy_from_slice(&[-5.0, 0.5]);
        assert_eq!(layer.step(&mut model).unwrap(), SyncOutcome::NotDue);
        assert_eq!(layer.end(&mut model).unwrap(), SyncOutcome::Committed);
        assert_eq!(model, [-1.0, 1.0]);
    });
}

#[test]
fn what_cannot_be_is_refused() {
    let lighthouse = lighthouse(1);
    let manager = Manager::new(options(&lighthouse, "alone")).unwrap();
    let made = |options: DilocoOptions| {
        let made = Diloco::new(&manager, &[0.0_f32; 10], OuterSgd::default(), options);
        made.map(drop).unwrap_err().to_string()
    };
    for (options, text) in [
        (DilocoOptions::new(0), "sync_every must be a multiple"),
        (DilocoOptions::new(3).fragments([0..5, 5..10]), "number of fragments, 2"),
        (DilocoOptions::new(2).fragments([0..5, 4..10]), "each once"),
        (DilocoOptions::new(2).fragments([0..5, 5..9]), "end at 9, and there are 10"),
        (DilocoOptions::new(2).fragment_sync_delay(2), "must be less than 2"),
        (DilocoOptions::new(2).fragment_update_alpha(f64::NAN), "from 0 to 1"),
    ] {
        let error = made(options);
        assert!(error.contains(text), "{error}");
    }
    assert!(OuterSgd::<f32>::new(-1.0, 0.0).is_err() && OuterSgd::<f32>::new(1.0, 1.0).is_err());
    assert!(LocalSgd::new(&manager, &[0.0_f32], 0).is_err());
    let mut layer = LocalSgd::new(&manager, &[0.0_f32], 1).unwrap();
    assert!(LocalSgd::new(&manager, &[0.0_f32], 1).is_err());
    let error = layer.step(&mut [0.0]).unwrap_err().to_string();
    assert!(error.contains("call join before step"), "{error}");
    let error = layer.join(&mut [0.0; 2]).unwrap_err().to_string();
    assert!(error.contains("made for 1 parameters, and these are 2"), "{error}");
}
