/** Code with colours. Loaded when the first answer has some: `text-block.tsx` shows it plain until then. */
import { memo, useMemo, useRef } from 'react';
import type { ReactNode } from 'react';

import { highlight, languageOf, noCode } from './highlight.ts';
import type { Highlighted, Run } from './highlight.ts';
import styles from './playground.module.css';

export interface HighlightedProps {
  readonly code: string;
  /** As the block of Markdown names it. */
  readonly info: string | undefined;
}

export default function HighlightedCode({ code, info }: HighlightedProps): ReactNode {
  const last = useRef(noCode);
  const language = languageOf(info);
  const read = useMemo<Highlighted | undefined>(
    () => (language === undefined ? undefined : (last.current = highlight(code, language, last.current))),
    [code, language],
  );
  return read === undefined ? code : read.pieces.map(({ runs }, at) => <Runs key={at} of={runs} />);
}

const Runs = memo(function Runs({ of: runs }: { readonly of: readonly Run[] }) {
  return runs.map(({ text, look }, at) =>
    look === undefined ? (
      text
    ) : (
      <span key={at} className={styles[look]}>
        {text}
      </span>
    ),
  );
});
