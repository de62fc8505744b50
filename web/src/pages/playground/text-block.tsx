import { memo } from 'react';

import { CodeBlock } from '../../components/code.tsx';
import { piecesOf } from './pieces.ts';
import styles from './playground.module.css';

/** What a model has written, as text: nothing in it takes effect. */
export const TextBlock = memo(function TextBlock({ text }: { readonly text: string }) {
  return piecesOf(text).map((piece, at) =>
    piece.isCode ? (
      <CodeBlock key={at} code={piece.text} label={piece.title || 'code'} />
    ) : (
      <div key={at} className={styles['text']} dir="auto">
        {piece.text}
      </div>
    ),
  );
});
