import { useMemo } from 'react';

import { qrCode } from './qr.ts';
import styles from './settings.module.css';

/** Modules of white around it, without which it cannot be read. */
const border = 4;

/** Dark on white in both themes: what reads it expects that. Nothing where the text is too long for one. */
export function QrCode({ text, label }: { readonly text: string; readonly label: string }) {
  const code = useMemo(() => qrCode(text), [text]);
  if (code === undefined) return null;
  const size = code.length + 2 * border;
  const path = code
    .flatMap((row, y) => row.flatMap((dark, x) => (dark ? [`M${x + border} ${y + border}h1v1h-1z`] : [])))
    .join('');
  return (
    <svg
      className={styles['qr']}
      viewBox={`0 0 ${size} ${size}`}
      role="img"
      aria-label={label}
      shapeRendering="crispEdges"
    >
      <rect width={size} height={size} fill="#fff" />
      <path d={path} fill="#000" />
    </svg>
  );
}
