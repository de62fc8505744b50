import type { ReactNode } from 'react';

import { classes } from './classes.ts';
import styles from './meter.module.css';

interface MeterProps {
  /** What it measures. */
  readonly label: string;
  readonly value: number;
  /** Null: there is no maximum, so there is only a text. */
  readonly max: number | null;
  /** How far something is, which is good when it is full. */
  readonly isProgress?: boolean;
  readonly children: ReactNode;
}

/** How much of a budget is used: the text says it, the bar shows it. From 80 % on it warns, unless it is progress. */
export function Meter({ label, value, max, isProgress = false, children }: MeterProps) {
  if (max === null) return <span className={styles['text']}>{children}</span>;
  const share = max <= 0 ? 1 : Math.min(1, Math.max(0, value / max));
  return (
    <div className={styles['meter']}>
      <span className={styles['text']}>{children}</span>
      <div
        className={styles['track']}
        role={isProgress ? 'progressbar' : 'meter'}
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round(share * 100)}
      >
        <div
          className={classes(
            styles['fill'],
            !isProgress && (share >= 1 ? styles['bad'] : share >= 0.8 && styles['warn']),
          )}
          style={{ width: `${share * 100}%` }}
        />
      </div>
    </div>
  );
}
