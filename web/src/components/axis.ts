import { scaleLinear } from 'd3-scale';

export interface Axis {
  readonly y: ReturnType<typeof scaleLinear<number>>;
  /** Values at the axis. */
  readonly ticks: readonly number[];
}

/** The axis of values from none up to the largest of these, drawn from `bottom` to `top`. */
export function axisOf(values: readonly number[], [bottom, top]: readonly [number, number]): Axis {
  const largest = Math.max(0, ...values);
  const y = scaleLinear([0, largest === 0 ? 1 : largest], [bottom, top]).nice(4);
  // Of nothing the axis says only that it is nothing.
  const ticks = largest === 0 ? [0] : y.ticks(4);
  // Half a request is none: what is counted has whole figures.
  return { y, ticks: values.every(Number.isInteger) ? ticks.filter(Number.isInteger) : ticks };
}
