/** A place that one running request takes; given back exactly once, in `finally`. */
export interface Slot {
  release(): void;
}
