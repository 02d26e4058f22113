"""Token ids: encoding that no text can forge, loss masks, rollouts that go on from what was sampled."""
