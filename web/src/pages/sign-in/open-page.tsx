import { useEffect } from 'react';
import type { ReactNode } from 'react';

import styles from './sign-in.module.css';

/** One form in the middle of the screen. */
export function OpenPage({
  title,
  lead,
  children,
}: {
  readonly title: string;
  readonly lead?: ReactNode;
  readonly children: ReactNode;
}) {
  useEffect(() => {
    document.title = `${title} · Tokenhouse`;
  }, [title]);
  return (
    <div className={styles['page']}>
      <h1>{title}</h1>
      {lead !== undefined && <p className={styles['lead']}>{lead}</p>}
      {children}
    </div>
  );
}
