/**
 * Charts of our own in SVG: they take the colours of the page, can be printed, and each has a table with the same figures, which is
 * what readers of the screen get. Load them where they are needed: `lazy(() => import('../../components/charts.tsx'))`.
 */
import { scaleBand, scaleLinear } from 'd3-scale';
import { area as areaOf, curveMonotoneX, line as lineOf, stack } from 'd3-shape';
import type { Series as StackedSeries } from 'd3-shape';
import { useEffect, useRef, useState } from 'react';
import type { ReactNode } from 'react';

import type { AppTexts } from '../app/messages/en.ts';
import { useText } from '../i18n/text.ts';
import { shownTicks } from './axis.ts';
import { ChartPoints } from './chart-points.tsx';
import { seriesColor } from './series.ts';
import type { ChartSeries } from './series.ts';
import styles from './charts.module.css';

/** Every figure is drawn: at most a page of the API, in `seriesMax` series (decision 043). */
export interface ChartProps {
  /** What it shows, in a few words. */
  readonly title: string;
  /** Along the axis: days, hours, names. */
  readonly labels: readonly string[];
  readonly series: readonly ChartSeries[];
  /** How a value is written at the axis, in tips and in the table. */
  readonly format: (value: number) => string;
  readonly height?: number;
  /** The series are not parts of a whole: each is drawn from the axis. */
  readonly isApart?: boolean;
  /** Where the bar of a label leads: the list behind the figure. */
  readonly onSelect?: (label: number) => void;
}

const margin = { top: 8, right: 4, bottom: 20 };
/** Of the figures at the axis, about. */
const characterWidth = 6.6;

interface Frame {
  readonly width: number;
  readonly height: number;
  /** Where the bars begin: the longest figure of the axis is before it. */
  readonly left: number;
  readonly x: ReturnType<typeof scaleBand<number>>;
  readonly stacked: readonly StackedSeries<number, number>[];
  /** Values at the axis. */
  readonly ticks: readonly number[];
  readonly y: ReturnType<typeof scaleLinear<number>>;
}

/** Bars, stacked where there are several series. */
export function BarChart(props: ChartProps) {
  return (
    <Figure {...props}>
      {({ x, y, stacked }) =>
        stacked.flatMap((layer, at) =>
          layer.map(([from, to], label) => (
            <rect
              key={`${at}-${label}`}
              x={x(label)}
              width={x.bandwidth()}
              y={y(to)}
              height={Math.max(0, y(from) - y(to))}
              fill={seriesColor(at)}
            />
          )),
        )
      }
    </Figure>
  );
}

/** Areas on each other: what a whole is made of, over time. */
export function AreaChart(props: ChartProps) {
  return (
    <Figure {...props}>
      {({ x, y, stacked }) => {
        const middle = (at: number): number => (x(at) ?? 0) + x.bandwidth() / 2;
        const shape = areaOf<readonly [number, number]>()
          .x((_, at) => middle(at))
          .y0(([from]) => y(from))
          .y1(([, to]) => y(to))
          .curve(curveMonotoneX);
        return stacked.map((layer, at) => (
          <path key={at} d={shape(layer as never) ?? ''} fill={seriesColor(at)} fillOpacity={0.85} />
        ));
      }}
    </Figure>
  );
}

/** Lines beside each other, with gaps where there is nothing (NaN): times, of which nobody makes a sum. */
export function LineChart(props: ChartProps) {
  return (
    <Figure {...props} isApart>
      {({ x, y }) => {
        const shape = lineOf<number>()
          .defined((value) => !Number.isNaN(value))
          .x((_, at) => (x(at) ?? 0) + x.bandwidth() / 2)
          .y((value) => y(value));
        return props.series.map(({ name, values }, at) => (
          <g key={at}>
            <title>{name}</title>
            <path
              d={shape(values) ?? ''}
              fill="none"
              stroke={seriesColor(at)}
              strokeWidth={2}
              strokeLinecap="round"
              strokeLinejoin="round"
            />
            {/* One between gaps is no line. */}
            {values.map(
              (value, label) =>
                isAlone(values, label) && (
                  <circle
                    key={label}
                    cx={(x(label) ?? 0) + x.bandwidth() / 2}
                    cy={y(value)}
                    r={3}
                    fill={seriesColor(at)}
                  />
                ),
            )}
          </g>
        ));
      }}
    </Figure>
  );
}

const isAlone = (values: readonly number[], at: number): boolean =>
  !Number.isNaN(values[at]) && Number.isNaN(values[at - 1] ?? NaN) && Number.isNaN(values[at + 1] ?? NaN);

/** The course of a figure beside it, without axes: the figure itself says how much. */
export function Sparkline({ values, label }: { readonly values: readonly number[]; readonly label: string }) {
  const [width, height] = [96, 24];
  const x = scaleLinear([0, Math.max(1, values.length - 1)], [1, width - 1]);
  const y = scaleLinear([0, Math.max(1e-9, ...values)], [height - 2, 2]);
  const path = lineOf<number>()
    .x((_, at) => x(at))
    .y((value) => y(value))(values);
  return (
    <svg width={width} height={height} role="img" aria-label={label}>
      <path d={path ?? ''} fill="none" stroke="var(--chart-1)" strokeWidth={1.5} />
    </svg>
  );
}

function Figure({
  title,
  labels,
  series,
  format,
  height = 180,
  isApart = false,
  onSelect,
  children,
}: ChartProps & { readonly children: (frame: Frame) => ReactNode }) {
  const t = useText<AppTexts>('app');
  const [width, box] = useWidth();
  const frame = frameOf(width, height, labels, series, format, isApart);
  const { left, ticks } = frame;
  const every = Math.max(1, Math.ceil((labels.length * 64) / Math.max(1, width - left)));
  return (
    <figure ref={box} className={styles['figure']}>
      <div className={styles['plot']}>
        <svg
          className={styles['svg']}
          viewBox={`0 0 ${width} ${height}`}
          width={width}
          height={height}
          aria-hidden="true"
        >
          {ticks.map((tick) => (
            <g key={tick} transform={`translate(0,${frame.y(tick)})`}>
              <line className={styles['gridline']} x1={left} x2={width - margin.right} />
              <text x={left - 6} dy="0.32em" textAnchor="end">
                {format(tick)}
              </text>
            </g>
          ))}
          {children(frame)}
          {labels.map((label, at) =>
            at % every === 0 ? (
              <text key={at} x={(frame.x(at) ?? 0) + frame.x.bandwidth() / 2} y={height - 5} textAnchor="middle">
                {label}
              </text>
            ) : null,
          )}
        </svg>
        {labels.length > 0 && (
          <ChartPoints {...{ title, labels, series, format, onSelect }} x={frame.x} width={width} />
        )}
      </div>
      {series.length > 1 && (
        <div className={styles['legend']}>
          {series.map(({ name }, at) => (
            <span key={name} className={styles['key']}>
              <span className={styles['swatch']} style={{ background: seriesColor(at) }} />
              {name}
            </span>
          ))}
        </div>
      )}
      <details className={styles['twin']}>
        <summary>{t('asTable', { title })}</summary>
        <div className={styles['scroll']} tabIndex={0} role="region" aria-label={title}>
          <table>
            <thead>
              <tr>
                <td />
                {series.map(({ name }) => (
                  <th key={name} scope="col">
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {labels.map((label, at) => (
                <tr key={at}>
                  <th scope="row">
                    {onSelect === undefined ? (
                      label
                    ) : (
                      <button type="button" onClick={() => onSelect(at)}>
                        {label}
                      </button>
                    )}
                  </th>
                  {series.map(({ name, values }) => (
                    <td key={name}>{Number.isNaN(values[at]) ? '–' : format(values[at] ?? 0)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </figure>
  );
}

function frameOf(
  width: number,
  height: number,
  labels: readonly string[],
  series: readonly ChartSeries[],
  format: (value: number) => string,
  isApart: boolean,
): Frame {
  const rows = labels.map((_, at) => at);
  const stacked = stack<unknown, number, number>()
    .keys(series.map((_, at) => at))
    .value((label, at) => Math.max(0, series[at]!.values[label] ?? 0))(rows) as StackedSeries<number, number>[];
  const tops = isApart
    ? series.flatMap(({ values }) => values.filter((value) => !Number.isNaN(value)))
    : stacked.flatMap((layer) => layer.map(([, to]) => to));
  const y = scaleLinear([0, Math.max(0, ...tops) || 1], [height - margin.bottom, margin.top]).nice(4);
  const ticks = shownTicks(tops, y.ticks(4));
  const left = 14 + Math.ceil(characterWidth * Math.max(...ticks.map((tick) => format(tick).length)));
  const x = scaleBand<number>(rows, [left, Math.max(left + 1, width - margin.right)]).padding(0.2);
  return { width, height, left, ticks, x, y, stacked };
}

/** As wide as what it is in, drawn again when that changes. */
function useWidth(): readonly [number, React.RefObject<HTMLElement | null>] {
  const box = useRef<HTMLElement>(null);
  const [width, setWidth] = useState(600);
  useEffect(() => {
    if (box.current === null) return undefined;
    const observer = new ResizeObserver(([entry]) => {
      if (entry !== undefined) setWidth(Math.max(160, Math.round(entry.contentRect.width)));
    });
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  return [width, box];
}
