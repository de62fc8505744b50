import type { MarkedToken, Token, Tokens } from 'marked';
import { lazy, memo, Suspense, useDeferredValue, useMemo, useRef } from 'react';
import type { ReactNode } from 'react';

import { CodeBlock } from '../../components/code.tsx';
import type { HighlightedProps } from './highlighted.tsx';
import { blocksOf, isJson, linkOf, nothing, unescaped } from './markdown.ts';
import styles from './playground.module.css';

const plain = { default: ({ code }: HighlightedProps): ReactNode => code };
/** Where it cannot be loaded, code stays plain. */
const HighlightedCode = lazy(() => import('./highlighted.tsx').catch(() => plain));

interface CodeProps extends HighlightedProps {
  readonly label: string;
  readonly wrap?: boolean;
}

/** Code that a model has written, with colours where its language is known. */
export function AnswerCode({ code, info, ...others }: CodeProps) {
  const shown =
    info === undefined ? (
      code
    ) : (
      <Suspense fallback={code}>
        <HighlightedCode code={code} info={info} />
      </Suspense>
    );
  return <CodeBlock code={code} shown={shown} {...others} />;
}

interface TextProps {
  readonly text: string;
  /** More of it may come. */
  readonly isOpen: boolean;
}

/** What a model has written, read as Markdown. What follows a link leaves nothing of this page behind; nothing else takes effect. */
export const TextBlock = memo(function TextBlock({ text, isOpen }: TextProps) {
  // Where it comes faster than it is read, what is between is left out.
  const shown = useDeferredValue(text);
  const isWhole = useMemo(() => !isOpen && isJson(shown), [isOpen, shown]);
  return isWhole ? <AnswerCode code={shown} info="json" label="json" wrap /> : <Markdown text={shown} />;
});

function Markdown({ text }: Pick<TextProps, 'text'>) {
  const last = useRef(nothing);
  const blocks = useMemo(() => (last.current = blocksOf(text, last.current)), [text]);
  return (
    <div className={styles['markdown']}>
      {blocks.tokens.map((token, at) => (
        <BlockElement key={at} of={token} />
      ))}
    </div>
  );
}

const BlockElement = memo(function BlockElement({ of }: { readonly of: Token }): ReactNode {
  const token = of as MarkedToken;
  switch (token.type) {
    case 'space':
      return null;
    case 'code':
      return <AnswerCode code={token.text} info={token.lang} label={token.lang?.trim() || 'code'} />;
    case 'heading':
      // Not of the page's own outline.
      return (
        <p className={styles['heading']} data-depth={token.depth} dir="auto">
          <Inline of={token.tokens} />
        </p>
      );
    case 'hr':
      return <hr />;
    case 'blockquote':
      return (
        <blockquote>
          <BlockElements of={token.tokens} />
        </blockquote>
      );
    case 'list':
      return <ListElement of={token as Tokens.List} />;
    case 'table':
      return <TableElement of={token as Tokens.Table} />;
    case 'paragraph':
      return (
        <p dir="auto">
          <Inline of={token.tokens ?? []} />
        </p>
      );
    case 'text':
      // Without tokens it is what was too long to be read.
      if (token.tokens !== undefined) return <Inline of={token.tokens} />;
      return (
        <div className={styles['text']} dir="auto">
          {token.text}
        </div>
      );
    case 'br':
    case 'checkbox':
    case 'codespan':
    case 'def':
    case 'del':
    case 'em':
    case 'escape':
    case 'html':
    case 'image':
    case 'link':
    case 'list_item':
    case 'strong':
      return <InlineElement of={token} />;
  }
});

const BlockElements = ({ of: tokens }: { readonly of: readonly Token[] }) =>
  tokens.map((token, at) => <BlockElement key={at} of={token} />);

function ListElement({ of: { ordered, start, items } }: { readonly of: Tokens.List }) {
  const shown = items.map((item, at) => (
    <li key={at} dir="auto">
      <BlockElements of={item.tokens} />
    </li>
  ));
  return ordered ? <ol start={start === '' ? 1 : start}>{shown}</ol> : <ul>{shown}</ul>;
}

function TableElement({ of: { header, rows } }: { readonly of: Tokens.Table }) {
  const alignOf = ({ align }: Tokens.TableCell) => (align === null ? {} : { style: { textAlign: align } });
  return (
    <div className={styles['table']} tabIndex={0}>
      <table>
        <thead>
          <tr>
            {header.map((cell, at) => (
              <th key={at} scope="col" dir="auto" {...alignOf(cell)}>
                <Inline of={cell.tokens} />
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((cells, row) => (
            <tr key={row}>
              {cells.map((cell, at) => (
                <td key={at} dir="auto" {...alignOf(cell)}>
                  <Inline of={cell.tokens} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const Inline = ({ of: tokens }: { readonly of: readonly Token[] }) =>
  tokens.map((token, at) => <InlineElement key={at} of={token as MarkedToken} />);

function InlineElement({ of: token }: { readonly of: MarkedToken }): ReactNode {
  switch (token.type) {
    case 'strong':
      return (
        <strong>
          <Inline of={token.tokens} />
        </strong>
      );
    case 'em':
      return (
        <em>
          <Inline of={token.tokens} />
        </em>
      );
    case 'del':
      return (
        <del>
          <Inline of={token.tokens} />
        </del>
      );
    case 'codespan':
      return <code>{token.text}</code>;
    case 'br':
      return <br />;
    case 'checkbox':
      return token.checked ? '☑ ' : '☐ ';
    case 'link':
      return (
        <LinkElement href={token.href}>
          <Inline of={token.tokens} />
        </LinkElement>
      );
    case 'image':
      // Fetching it would tell its server who has read what.
      return <LinkElement href={token.href}>{unescaped(token.text) || token.href}</LinkElement>;
    case 'escape':
      return token.text;
    case 'text':
      return token.tokens === undefined ? unescaped(token.text) : <Inline of={token.tokens} />;
    // Blocks that are in no line, and what is not read as such (markdown.ts).
    case 'blockquote':
    case 'code':
    case 'def':
    case 'heading':
    case 'hr':
    case 'html':
    case 'list':
    case 'list_item':
    case 'paragraph':
    case 'space':
    case 'table':
      return token.raw;
  }
}

function LinkElement({ href, children }: { readonly href: string; readonly children: ReactNode }) {
  const url = linkOf(href);
  if (url === undefined) return children;
  return (
    <a href={url} title={url} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  );
}
