/** Figures of an axis that are shown, of those that its scale proposes. Half a request is none: what is counted has whole figures; of nothing, that is all. */
export function shownTicks(values: readonly number[], proposed: readonly number[]): readonly number[] {
  if (values.every((value) => value <= 0)) return [0];
  return values.every(Number.isInteger) ? proposed.filter(Number.isInteger) : proposed;
}
