//! Tracks clients that were just answered and are expected to send their next request.
//!
//! Rounds are the leader's proposals. A client that was answered in this round or the one before, and has sent nothing since, is awaited. A
//! connection that gets output twice without a request in between is a subscriber or a monitor: it is not awaited until it sends
//! something.

/// The crowd's state for one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Turn {
    /// The client has sent something, or was never sent anything.
    #[default]
    Unanswered,
    /// Answered in this round.
    Answered(u64),
    /// It receives data that are no answers.
    PushedTo,
}

/// The clients that are expected to send a request soon.
#[derive(Clone, Debug, Default)]
pub struct Crowd {
    round: u64,
    /// Awaited since this round, and since the one before.
    awaited: [usize; 2],
}

impl Crowd {
    /// The number of awaited clients.
    #[must_use]
    pub const fn awaited(&self) -> usize {
        self.awaited[0] + self.awaited[1]
    }

    /// Whether this client is awaited.
    #[cfg(test)]
    pub fn awaits(&self, turn: Turn) -> bool {
        matches!(turn, Turn::Answered(round) if self.round - round < 2)
    }

    /// The client was sent something.
    pub fn answered(&mut self, turn: &mut Turn) {
        match *turn {
            Turn::Unanswered => {
                *turn = Turn::Answered(self.round);
                self.awaited[0] += 1;
            }
            Turn::Answered(round) if round != self.round => {
                self.spoke(turn);
                *turn = Turn::PushedTo;
            }
            Turn::Answered(_) | Turn::PushedTo => {}
        }
    }

    /// The client sent something, or is gone.
    pub fn spoke(&mut self, turn: &mut Turn) {
        if let Turn::Answered(round) = std::mem::take(turn)
            && let Some(awaited) = self.awaited.get_mut((self.round - round) as usize)
        {
            *awaited -= 1;
        }
    }

    /// A round ends.
    pub const fn proposed(&mut self) {
        self.awaited = [0, self.awaited[0]];
        self.round += 1;
    }

    /// No client is awaited any more.
    pub const fn forget(&mut self) {
        self.awaited = [0, 0];
        self.round += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_come_back_is_awaited_for_two_rounds() {
        let mut crowd = Crowd::default();
        let (mut quick, mut slow) = (Turn::default(), Turn::default());
        crowd.answered(&mut quick);
        crowd.answered(&mut slow);
        crowd.answered(&mut slow);
        assert_eq!(crowd.awaited(), 2);
        crowd.spoke(&mut quick);
        crowd.proposed();
        assert_eq!(crowd.awaited(), 1, "the slow one has a round more");
        crowd.answered(&mut quick);
        assert_eq!(crowd.awaited(), 2);
        crowd.proposed();
        assert_eq!(crowd.awaited(), 1);
        crowd.spoke(&mut slow);
        assert_eq!(crowd.awaited(), 1, "too late to count");
        crowd.spoke(&mut quick);
        crowd.spoke(&mut quick);
        assert_eq!(crowd.awaited(), 0);
    }

    #[test]
    fn who_is_only_pushed_to_is_not_awaited() {
        let mut crowd = Crowd::default();
        let mut subscriber = Turn::default();
        crowd.answered(&mut subscriber);
        crowd.proposed();
        assert_eq!(crowd.awaited(), 1);
        crowd.answered(&mut subscriber);
        assert_eq!((crowd.awaited(), subscriber), (0, Turn::PushedTo));
        crowd.proposed();
        crowd.answered(&mut subscriber);
        assert_eq!(crowd.awaited(), 0);
        crowd.spoke(&mut subscriber);
        crowd.answered(&mut subscriber);
        assert_eq!(crowd.awaited(), 1, "it asked, and was answered");
    }

    #[test]
    fn forgetting_forgets_all() {
        let mut crowd = Crowd::default();
        let mut turns = [Turn::default(); 3];
        crowd.answered(&mut turns[0]);
        crowd.proposed();
        crowd.answered(&mut turns[1]);
        crowd.forget();
        for turn in &mut turns {
            crowd.spoke(turn);
        }
        assert_eq!(crowd.awaited(), 0);
    }
}
