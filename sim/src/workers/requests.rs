//! Turns that are requests of their own: what becomes of them.

use bytes::Bytes;
use millrace_base::ErrorCode;
use millrace_format::worker::{AttemptKind, AttemptToken};

use super::run::{Frames, Received};
use super::{Workers, failed};
use crate::happened::Thing;
use crate::random::Rng;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    /// Nobody takes it.
    Unsent,
    /// It is lost before a worker has it.
    Lost,
    /// Its answer is lost with this frame.
    AnswerLost,
    /// Nothing comes of it in time, whether a worker has run it or not.
    Stalled,
    /// The answer ends before this frame, as if that were all.
    Cut,
    /// This frame of the answer comes twice.
    FrameDoubled,
    /// Two workers get it, and one answer counts.
    Doubled,
}

fn draw(rng: &mut Rng, is_calm: bool) -> Fate {
    if is_calm {
        return Fate::Answered;
    }
    match rng.below(60) {
        0 => Fate::Unsent,
        1 => Fate::Lost,
        2 | 3 => Fate::AnswerLost,
        4 => Fate::Stalled,
        5 => Fate::Cut,
        6 => Fate::FrameDoubled,
        7 | 8 => Fate::Doubled,
        _ => Fate::Answered,
    }
}

fn joined(frames: &Frames) -> Bytes {
    frames.concat().into()
}

impl Workers {
    /// One request has been taken to a worker, and its answer back.
    pub(super) fn answer_one(&mut self, rng: &mut Rng, is_calm: bool) -> bool {
        let waits = |(_, exchange): &(&AttemptToken, &super::Exchange)| {
            exchange.is_request && (is_calm || !exchange.is_stalled)
        };
        let waiting: Vec<AttemptToken> = self.exchanges.iter().filter(waits).map(|(attempt, _)| *attempt).collect();
        if waiting.is_empty() {
            return false;
        }
        let attempt = waiting[rng.index(waiting.len())];
        let received = Received::of_request(&self.exchanges[&attempt].content);
        let fate = match draw(rng, is_calm) {
            // A workflow whose worker does not do the same again has failed for good.
            Fate::FrameDoubled if received.start.kind == AttemptKind::Workflow => Fate::Doubled,
            fate => fate,
        };
        self.note(fate);
        match fate {
            Fate::Unsent => self.end(attempt, Err(failed(ErrorCode::WorkerUnavailable, "nobody listens"))),
            Fate::Lost => self.end(attempt, Err(failed(ErrorCode::WorkerFailed, "the request was lost"))),
            _ => {
                let frames = self.process.answer(&received);
                let is_lost = self.plan.carry() | frames.iter().filter(|_| self.plan.carry()).count().gt(&0);
                self.answer(attempt, (fate, is_lost), frames, rng);
            }
        }
        true
    }

    fn note(&mut self, fate: Fate) {
        match fate {
            Fate::Answered => {}
            Fate::Unsent => self.happened.note(Thing::WorkerAway),
            Fate::Lost | Fate::AnswerLost => self.happened.note(Thing::WorkerLost),
            Fate::Stalled => self.happened.note(Thing::WorkerFellSilent),
            Fate::Cut => self.happened.note(Thing::WorkerTurnCut),
            Fate::FrameDoubled | Fate::Doubled => self.happened.note(Thing::WorkerFrameDoubled),
        }
    }

    fn answer(&mut self, attempt: AttemptToken, (fate, is_lost): (Fate, bool), mut frames: Frames, rng: &mut Rng) {
        if let Some(late) = self.bugs.late_answer(attempt) {
            return self.end(attempt, Ok(late));
        }
        frames.iter().for_each(|frame| self.bugs.saw(attempt, frame));
        if is_lost || fate == Fate::AnswerLost {
            self.bugs.came_late(attempt, joined(&frames));
            return self.end(attempt, Err(failed(ErrorCode::WorkerFailed, "the answer was lost")));
        }
        match fate {
            Fate::Stalled => {
                self.bugs.came_late(attempt, joined(&frames));
                if let Some(exchange) = self.exchanges.get_mut(&attempt) {
                    exchange.is_stalled = true;
                }
                return;
            }
            Fate::Cut => frames.truncate(rng.index(frames.len())),
            Fate::FrameDoubled => {
                let place = rng.index(frames.len());
                frames.insert(place, frames[place].clone());
            }
            Fate::Doubled => {
                let received = Received::of_request(&self.exchanges[&attempt].content);
                assert_eq!(self.process.answer(&received), frames, "a worker does the same again");
                self.bugs.doubled(attempt);
            }
            Fate::Answered | Fate::Unsent | Fate::Lost | Fate::AnswerLost => {}
        }
        self.end(attempt, Ok(joined(&frames)));
    }
}
