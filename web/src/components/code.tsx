import type { ReactNode } from 'react';

import { classes } from './classes.ts';
import { CopyButton } from './copy.tsx';
import styles from './code.module.css';

interface CodeBlockProps {
  readonly code: string;
  /** In its place to look at: the same, shortened or with colours. */
  readonly shown?: ReactNode;
  readonly copyLabel?: string;
  /** What it is, for readers of the screen. */
  readonly label: string;
  /** Long lines are broken instead of scrolled. */
  readonly wrap?: boolean;
  readonly onCopied?: () => void;
}

export function CodeBlock({ code, shown, label, copyLabel, wrap, onCopied }: CodeBlockProps) {
  return (
    <div className={classes(styles['block'], wrap === true && styles['wrap'])}>
      <pre tabIndex={0} role="region" aria-label={label}>
        <code>{shown ?? code}</code>
      </pre>
      <div className={styles['copy']}>
        <CopyButton
          text={code}
          {...(copyLabel === undefined ? {} : { label: copyLabel })}
          {...(onCopied === undefined ? {} : { onCopied })}
        />
      </div>
    </div>
  );
}

/** An id with a button that copies it. */
export function Id({ value }: { readonly value: string }) {
  return (
    <span className={styles['id']}>
      <code>{value}</code>
      <CopyButton text={value} />
    </span>
  );
}
