import type { ReactNode } from 'react';

import { IconButton } from './button.tsx';
import { CloseIcon } from './icons.tsx';
import styles from './removable-row.module.css';

interface RemovableRowProps {
  /** Of the button: what it removes. */
  readonly label: string;
  readonly onRemove: () => void;
  readonly children: ReactNode;
}

/** Fields of one of several, and beside them the button that removes it. */
export const RemovableRow = ({ label, onRemove, children }: RemovableRowProps) => (
  <div className={styles['row']}>
    <div>{children}</div>
    <IconButton label={label} icon={<CloseIcon />} onClick={onRemove} />
  </div>
);
