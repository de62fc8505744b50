import type { ReactNode } from 'react';

import styles from './settings.module.css';

interface PartProps {
  readonly title: string;
  readonly text: ReactNode;
  /** What one can do. */
  readonly children: ReactNode;
}

/** One of several things of a panel: what it is, and its button. */
export const Part = ({ title, text, children }: PartProps) => (
  <div className={styles['part']}>
    <div>
      <strong>{title}</strong>
      <p>{text}</p>
    </div>
    {children}
  </div>
);
