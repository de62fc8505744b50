import { useRef, useState } from 'react';

import { mayMakeKeys, useSession } from '../../api/session.ts';
import { sessionKey } from '../../api/session-key.ts';
import { useGet } from '../../api/use-api.ts';
import type { Got } from '../../api/use-api.ts';
import { Button, LinkButton } from '../../components/button.tsx';
import { isConversational } from '../../components/chat-models.ts';
import { classes } from '../../components/classes.ts';
import { Form, FormButtons, Select, TextArea } from '../../components/form.tsx';
import { Page, Panel } from '../../components/page.tsx';
import { Snippets } from '../../components/snippets.tsx';
import { EmptyState, ErrorNote, Loaded } from '../../components/state.tsx';
import { useNow } from '../../components/use-now.ts';
import { formatMoney } from '../../format/money.ts';
import { formatMilliseconds } from '../../format/number.ts';
import { useText } from '../../i18n/text.ts';
import { ask, AskFailure } from './ask.ts';
import type { StartTexts } from './messages/en.ts';
import styles from './start.module.css';

export default function StartPage() {
  const t = useText<StartTexts>('start');
  const { may } = useSession();
  const models = useGet('/v1/models/cards');
  return (
    <Page title={t('title')} lead={t('lead')} narrow>
      <Loaded of={models}>
        {({ data }) => {
          const [first, ...others] = data.filter(isConversational);
          return first === undefined ? (
            <EmptyState title={t('noModels')} />
          ) : (
            <>
              {may(mayMakeKeys) && <Question models={[first, ...others].map(({ model }) => model)} />}
              <Panel title={t('step2')} actions={may(mayMakeKeys) && <CreateKey />}>
                <p>{t('makeKey')}</p>
                <Snippets secret={t('keyPlaceholder')} model={first.model} />
              </Panel>
              <Panel title={t('step3')}>
                <WaitingLight />
              </Panel>
            </>
          );
        }}
      </Loaded>
    </Page>
  );
}

function CreateKey() {
  const t = useText<StartTexts>('start');
  return (
    <LinkButton small to="/keys" search={{ create: true } as never}>
      {t('createKey')}
    </LinkButton>
  );
}

function Question({ models }: { readonly models: readonly string[] }) {
  const t = useText<StartTexts>('start');
  const server = useGet('/v1/server');
  const stop = useRef<AbortController>(undefined);
  const [isRunning, setRunning] = useState(false);
  const [answer, setAnswer] = useState<string>();
  const [firstMs, setFirstMs] = useState<number>();
  const [error, setError] = useState<unknown>();
  const url = server.data?.inference_url ?? '';

  const run = async (model: string, prompt: string): Promise<void> => {
    setRunning(true);
    setError(undefined);
    setAnswer('');
    setFirstMs(undefined);
    const controller = new AbortController();
    stop.current = controller;
    try {
      const { secret } = await sessionKey();
      const startedAt = performance.now();
      const onText = (text: string): void => {
        setFirstMs((known) => known ?? performance.now() - startedAt);
        setAnswer((shown = '') => shown + text);
      };
      await ask({ url, secret, model, prompt, signal: controller.signal, onText });
    } catch (failure) {
      if (failure instanceof AskFailure && failure.isUnreachable) setError(new Error(t('failed', { url })));
      else if (!controller.signal.aborted) setError(failure);
    } finally {
      setRunning(false);
    }
  };
  return (
    <Panel title={t('step1')}>
      <Form error={error} onSubmit={(form) => void run(String(form.get('model')), String(form.get('prompt')))}>
        {models.length === 1 ? (
          <input type="hidden" name="model" value={models[0]} />
        ) : (
          <Select name="model" label={t('model')} options={models.map((value) => ({ value, text: value }))} />
        )}
        <TextArea name="prompt" label={t('prompt')} hint={t('useKey')} rows={2} defaultValue={t('example')} />
        <FormButtons>
          {isRunning ? (
            <Button key="stop" onClick={() => stop.current?.abort()}>
              {t('stop')}
            </Button>
          ) : (
            <Button key="send" type="submit" look="primary" disabled={url === ''}>
              {t('send')}
            </Button>
          )}
        </FormButtons>
      </Form>
      {answer !== undefined && (
        <>
          <div
            className={styles['answer']}
            role="region"
            aria-label={t('answer')}
            aria-live="polite"
            aria-busy={isRunning}
          >
            {answer}
          </div>
          {firstMs !== undefined && (
            <p className={styles['meta']}>
              {t('firstToken', { time: formatMilliseconds(firstMs) })} · {t('balanceNote')}
            </p>
          )}
        </>
      )}
    </Panel>
  );
}

const askedEveryMs = 2000;
const mistakesAfterMs = 60_000;

/** Turns green when a request arrives that no page of the console has made. */
function WaitingLight() {
  const t = useText<StartTexts>('start');
  const [openedAt] = useState(() => Date.now());
  const now = useNow(askedEveryMs);
  const server = useGet('/v1/server');
  const requests = useGet('/v1/generations', { query: { limit: 20 } }, { every: askedEveryMs });
  const keys = useGet('/v1/keys', { query: { limit: 100, include_disabled: true } });
  // Lists show no keys of sessions, with which this page asks.
  const listed = new Set((keys.data?.data ?? []).map(({ id }) => id));
  const own = requests.data?.data.find(({ key_id: key }) => listed.has(key));
  const url = server.data?.inference_url ?? '';
  return (
    <>
      <div className={styles['light']} role="status">
        <span className={classes(styles['dot'], own !== undefined && styles['arrived'])} />
        {own === undefined ? t('waiting') : <Arrived of={own} />}
      </div>
      {requests.error !== null && <ErrorNote error={requests.error} />}
      {own === undefined && now - openedAt > mistakesAfterMs && (
        <>
          <h3>{t('mistakes')}</h3>
          <ul className={styles['mistakes']}>
            <li>{t('mistake1', { url })}</li>
            <li>{t('mistake2')}</li>
            <li>{t('mistake3', { url })}</li>
          </ul>
        </>
      )}
    </>
  );
}

function Arrived({ of }: { readonly of: Got<'/v1/generations'>['data'][number] }) {
  const t = useText<StartTexts>('start');
  const tokens = of.tokens_prompt + of.tokens_completion;
  return <>{t('arrived', { model: of.model, tokens, cost: formatMoney(of.total_cost_microcents) })}</>;
}
