/**
 * The points of a chart, over its drawing: under the mouse, the finger, or the arrow keys. A component of its own, so that a move draws
 * a tip and not the chart.
 */
import { useRef, useState } from 'react';
import type { KeyboardEvent, PointerEvent } from 'react';

import type { AppTexts } from '../app/messages/en.ts';
import { useText } from '../i18n/text.ts';
import { seriesColor } from './series.ts';
import type { ChartSeries } from './series.ts';
import styles from './charts.module.css';

interface ChartPointsProps {
  readonly title: string;
  readonly labels: readonly string[];
  readonly series: readonly ChartSeries[];
  readonly format: (value: number) => string;
  readonly onSelect?: ((label: number) => void) | undefined;
  /** Of the drawing, which is as wide as `width`. */
  readonly x: { (label: number): number | undefined; bandwidth(): number; step(): number };
  readonly width: number;
}

/** One stop of the keyboard for all points, so that a year of days is no year of tabs. */
export function ChartPoints({ title, labels, series, format, onSelect, x, width }: ChartPointsProps) {
  const t = useText<AppTexts>('app');
  const [chosen, setChosen] = useState<number | undefined>();
  /** What the last finger chose before it came: another tap at the same point opens it. */
  const touched = useRef<{ readonly before: number | undefined } | undefined>(undefined);
  const last = labels.length - 1;
  // Fewer labels may have come.
  const at = chosen === undefined ? undefined : Math.min(chosen, last);
  const labelAt = ({ clientX, currentTarget }: PointerEvent): number => {
    const box = currentTarget.getBoundingClientRect();
    const drawn = ((clientX - box.left) * width) / box.width;
    const gap = (x.step() - x.bandwidth()) / 2;
    return Math.max(0, Math.min(last, Math.floor((drawn - (x(0) ?? 0) + gap) / x.step())));
  };
  const keys = (event: KeyboardEvent): void => {
    const from = at ?? last;
    const moves: Readonly<Record<string, number>> = {
      ArrowLeft: from - 1,
      ArrowDown: from - 1,
      ArrowRight: from + 1,
      ArrowUp: from + 1,
      PageDown: from - 7,
      PageUp: from + 7,
      Home: 0,
      End: last,
    };
    const to = moves[event.key];
    if (to !== undefined) setChosen(Math.max(0, Math.min(last, to)));
    else if (event.key === 'Escape' && at !== undefined) setChosen(undefined);
    else if (event.key === 'Enter' && at !== undefined && onSelect !== undefined) onSelect(at);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const isFocused = ({ currentTarget }: PointerEvent): boolean => document.activeElement === currentTarget;
  return (
    <>
      <div
        className={styles['points']}
        role="slider"
        tabIndex={0}
        aria-label={title}
        aria-orientation="horizontal"
        aria-valuemin={0}
        aria-valuemax={last}
        aria-valuenow={at ?? last}
        aria-valuetext={labels[at ?? last]}
        data-opens={onSelect === undefined ? undefined : ''}
        onKeyDown={keys}
        onFocus={() => setChosen((one) => one ?? last)}
        onBlur={() => setChosen(undefined)}
        onPointerDown={(event) => {
          touched.current = event.pointerType === 'mouse' ? undefined : { before: at };
          setChosen(labelAt(event));
        }}
        onPointerMove={(event) => setChosen(labelAt(event))}
        onPointerLeave={(event) => {
          if (event.pointerType === 'mouse' && !isFocused(event)) setChosen(undefined);
        }}
        onClick={(event) => {
          const label = labelAt(event as unknown as PointerEvent);
          if (touched.current === undefined || touched.current.before === label) onSelect?.(label);
        }}
      />
      {at !== undefined && (
        <span
          className={styles['band']}
          style={{ left: `${((x(at) ?? 0) / width) * 100}%`, width: `${(x.bandwidth() / width) * 100}%` }}
        />
      )}
      <div role="status" className={styles['tips']}>
        {at !== undefined && (
          <div className={styles['tip']} style={sideOf(((x(at) ?? 0) + x.bandwidth() / 2) / width)}>
            <strong>{labels[at]}</strong>
            <Values {...{ series, format, at }} />
            {onSelect !== undefined && <small>{t('chartOpens')}</small>}
          </div>
        )}
      </div>
    </>
  );
}

/** Beside the point, at the side that has room. */
const sideOf = (share: number) =>
  share > 0.5 ? { right: `${(1 - share) * 100 + 2}%` } : { left: `${share * 100 + 2}%` };

/** Those that are not 0, or that there is nothing. */
function Values({ series, format, at }: Pick<ChartPointsProps, 'series' | 'format'> & { readonly at: number }) {
  const values = series.map(({ name, values: all }, index) => ({ name, index, value: all[at] ?? 0 }));
  const there = values.filter(({ value }) => value !== 0);
  if (there.length === 0) return <span>{format(0)}</span>;
  return there.map(({ name, index, value }) => (
    <span key={index} className={styles['key']}>
      <span className={styles['swatch']} style={{ background: seriesColor(index) }} />
      {name} {format(value)}
    </span>
  ));
}
