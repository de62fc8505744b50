/** The slot of one running request; returned exactly once, in `finally`. */
export interface Slot {
  release(): void;
}
