import type { ReactNode } from 'react';

import { classes } from './classes.ts';
import styles from './badge.module.css';

export type Tone = 'plain' | 'good' | 'warn' | 'bad' | 'accent';

/** A state in one or two words. The word says it; the colour only helps. */
export function Badge({ tone = 'plain', children }: { readonly tone?: Tone; readonly children: ReactNode }) {
  return <span className={classes(styles['badge'], styles[tone])}>{children}</span>;
}
