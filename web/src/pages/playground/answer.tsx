import { Link } from '@tanstack/react-router';
import { memo, useState } from 'react';
import type { KeyboardEvent, ReactNode } from 'react';

import { Badge } from '../../components/badge.tsx';
import { Button } from '../../components/button.tsx';
import { Charge } from '../../components/figures.tsx';
import { TextArea } from '../../components/form.tsx';
import { ErrorNote } from '../../components/state.tsx';
import { useNow } from '../../components/use-now.ts';
import { formatMilliseconds, formatNumber } from '../../format/number.ts';
import { useText } from '../../i18n/text.ts';
import { callsOf } from './conversation.ts';
import type { Block, Call } from './conversation.ts';
import type { PlaygroundTexts } from './messages/en.ts';
import type { Answer } from './playground.ts';
import { RawView } from './raw-view.tsx';
import { Unreachable } from './run.ts';
import { StreamFault } from '../../api/sse.ts';
import { AnswerCode, TextBlock } from './text-block.tsx';
import styles from './playground.module.css';

/** What one can do with an answer; the same object as long as the page is there. */
export interface AnswerActions {
  readonly again: (column: number, place: number) => void;
  readonly edit: (column: number, place: number, text: string) => void;
  readonly returnResults: (column: number, place: number) => void;
  readonly setResult: (column: number, place: number, callId: string, text: string) => void;
  readonly showCode: (answer: Answer) => void;
}

interface AnswerProps {
  readonly of: Answer;
  readonly column: number;
  readonly place: number;
  /** Nothing comes after it. */
  readonly isLast: boolean;
  readonly actions: AnswerActions;
}

export const AnswerView = memo(function AnswerView({ of: answer, column, place, isLast, actions }: AnswerProps) {
  const t = useText<PlaygroundTexts>('playground');
  const [isRaw, setRaw] = useState(false);
  const calls = callsOf(answer);
  const isRunning = answer.state === 'running';
  return (
    <article
      className={styles['answer']}
      aria-label={t('answerOf', { model: answer.model })}
      aria-busy={isRunning}
      aria-live="polite"
    >
      {answer.blocks.map((block, at) => (
        <BlockView key={at} of={block} isOpen={isRunning && at === answer.blocks.length - 1} />
      ))}
      {calls.length > 0 && !isRunning && (
        <Results of={answer} calls={calls} isLast={isLast} column={column} place={place} actions={actions} />
      )}
      {answer.error !== undefined && <Failure error={answer.error} />}
      {isRunning ? <Waiting of={answer} /> : <Figures of={answer} />}
      {!isRunning && (
        <div className={styles['actions']}>
          <Button small look="quiet" onClick={() => actions.again(column, place)}>
            {t('again')}
          </Button>
          <Button small look="quiet" aria-expanded={isRaw} onClick={() => setRaw(!isRaw)}>
            {t('raw')}
          </Button>
          <Button small look="quiet" onClick={() => actions.showCode(answer)}>
            {t('code')}
          </Button>
        </div>
      )}
      {isRaw && <RawView of={answer} />}
    </article>
  );
});

/** Reasoning is open while it comes, and can be opened again. */
function BlockView({ of: block, isOpen }: { readonly of: Block; readonly isOpen: boolean }) {
  const t = useText<PlaygroundTexts>('playground');
  const [chosen, setChosen] = useState<boolean>();
  switch (block.kind) {
    case 'text':
      return <TextBlock text={block.text} isOpen={isOpen} />;
    case 'reasoning':
      return (
        <details className={styles['reasoning']} open={chosen ?? isOpen}>
          <summary
            onClick={(event) => {
              event.preventDefault();
              setChosen(!(chosen ?? isOpen));
            }}
          >
            {t('reasoning')}
          </summary>
          <div className={styles['text']} dir="auto">
            {block.text}
          </div>
        </details>
      );
    case 'call':
      return (
        <div className={styles['call']}>
          <div className={styles['callName']}>
            <Badge tone="accent">{t('calls')}</Badge> <code>{block.name}</code>
          </div>
          <AnswerCode label={`${t('arguments')}: ${block.name}`} code={prettyOf(block.arguments)} info="json" />
        </div>
      );
  }
}

/** Indented, once it is whole. */
function prettyOf(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}

interface ResultsProps extends AnswerProps {
  readonly calls: readonly Call[];
}

/** What the tools have returned: the person says it, and may say something else later. */
function Results({ of: answer, calls, isLast, column, place, actions }: ResultsProps) {
  const t = useText<PlaygroundTexts>('playground');
  const send = (): void => actions.returnResults(column, place);
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    event.stopPropagation();
    send();
  };
  return (
    <div className={styles['results']}>
      {calls.map(({ id, name }) => (
        <TextArea
          key={id}
          label={t('result', { name })}
          required={false}
          rows={2}
          spellCheck={false}
          value={answer.results[id] ?? ''}
          onChange={({ target }) => actions.setResult(column, place, id, target.value)}
          onKeyDown={onKeyDown}
        />
      ))}
      <div>
        <Button small look={isLast ? 'primary' : 'plain'} onClick={send}>
          {isLast ? t('sendResults') : t('sendAgain')}
        </Button>
      </div>
    </div>
  );
}

function Failure({ error }: { readonly error: unknown }) {
  const t = useText<PlaygroundTexts>('playground');
  if (error instanceof Unreachable) return <ErrorNote error={new Error(t('unreachable', { url: error.url }))} />;
  if (error instanceof StreamFault) return <ErrorNote error={new Error(t('errorRaw', { message: error.message }))} />;
  return <ErrorNote error={error} />;
}

/** How long it takes, until it is there. */
function Waiting({ of: { startedAt, progress } }: { readonly of: Answer }) {
  const t = useText<PlaygroundTexts>('playground');
  const now = useNow(100);
  const { firstMs, elapsedMs, read } = progress;
  const parts =
    firstMs === undefined
      ? [t('waiting'), formatMilliseconds(Math.max(0, now - startedAt))]
      : [
          t('tokensAbout', { n: read.pieces }),
          ...speedOf(read.pieces, elapsedMs - firstMs, (speed) => t('speed', { speed })),
          t('firstToken', { time: formatMilliseconds(firstMs) }),
        ];
  return <p className={styles['figures']}>{parts.join(' · ')}</p>;
}

const speedOf = (tokens: number, ms: number, text: (speed: string) => string): readonly string[] =>
  tokens < 2 || ms <= 0 ? [] : [text(formatNumber(((tokens - 1) * 1000) / ms, { maximumFractionDigits: 1 }))];

/** By the usage of the answer; of one that has none, because it was stopped, by its receipt. */
function Figures({ of: { progress, state, receipt } }: { readonly of: Answer }) {
  const t = useText<PlaygroundTexts>('playground');
  const { firstMs, elapsedMs, read, requestId } = progress;
  const usage =
    read.usage ??
    (receipt === null || receipt === undefined
      ? undefined
      : {
          prompt: receipt.tokens_prompt,
          cached: receipt.tokens_cached,
          completion: receipt.tokens_completion,
          reasoning: receipt.tokens_reasoning,
        });
  const figures: readonly ReactNode[] = [
    ...(state === 'stopped' ? [<Badge tone="warn">{t('stopped')}</Badge>] : []),
    ...(read.finish === undefined ? [] : [<code>{read.finish}</code>]),
    ...(usage === undefined ? [] : [<span title={t('tokensTip', { ...usage })}>{t('tokensOf', { ...usage })}</span>]),
    ...(firstMs === undefined ? [] : [t('firstToken', { time: formatMilliseconds(firstMs) })]),
    ...(usage === undefined || firstMs === undefined
      ? []
      : speedOf(usage.completion, elapsedMs - firstMs, (speed) => t('speed', { speed }))),
    ...(receipt === null || receipt === undefined ? [] : [<Charge microcents={receipt.total_cost_microcents} />]),
    ...(requestId === undefined || receipt === null
      ? []
      : [<Link to={`/requests/${receipt?.id ?? requestId}`}>{t('receipt')}</Link>]),
  ];
  if (figures.length === 0) return null;
  return (
    <p className={styles['figures']}>
      {figures.map((figure, at) => (
        <span key={at}>{figure}</span>
      ))}
    </p>
  );
}
