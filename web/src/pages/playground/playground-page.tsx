import { useEffect, useMemo, useRef, useState, useSyncExternalStore } from 'react';
import type { ReactNode } from 'react';

import { useSession } from '../../api/session.ts';
import { useGet, useRefresh } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { CopyButton } from '../../components/copy.tsx';
import { PlusIcon } from '../../components/icons.tsx';
import { Page } from '../../components/page.tsx';
import { EmptyState, Loaded } from '../../components/state.tsx';
import { useText } from '../../i18n/text.ts';
import type { AnswerActions } from './answer.tsx';
import { playgroundRoute } from './routes.ts';
import { CodeDialog } from './code-dialog.tsx';
import { Column } from './column.tsx';
import { Composer } from './composer.tsx';
import { examples } from './examples.ts';
import { KeyBar } from './key-bar.tsx';
import { messagesOf } from './kept-prompts.ts';
import type { KeptPrompt } from './kept-prompts.ts';
import type { PlaygroundTexts } from './messages/en.ts';
import { columnsMax, playgroundOf } from './playground.ts';
import type { MakeRequest, Playground, PlaygroundState } from './playground.ts';
import { PromptsDialog } from './prompts-dialog.tsx';
import type { Request } from './run.ts';
import type { Search } from './search.ts';
import { askable, chosenModels, featuresOf, requestOf, withModels } from './settings.ts';
import type { Model } from './settings.ts';
import { Settings } from './settings-panel.tsx';
import styles from './playground.module.css';

export default function PlaygroundPage() {
  const t = useText<PlaygroundTexts>('playground');
  const models = useGet('/v1/models/cards');
  const server = useGet('/v1/server');
  const { me, account } = useSession();
  const playground = playgroundOf(`${me.id} ${account?.id ?? ''}`);
  return (
    <Page title={t('name')} lead={t('lead')} wide>
      <Loaded of={models} lines={8}>
        {({ data }) =>
          askable(data).length === 0 ? (
            <EmptyState title={t('noModels')}>{t('noModelsText')}</EmptyState>
          ) : (
            <Workspace models={askable(data)} playground={playground} url={server.data?.inference_url ?? ''} />
          )
        }
      </Loaded>
    </Page>
  );
}

interface WorkspaceProps {
  readonly models: readonly Model[];
  readonly playground: Playground;
  /** Of the inference host; empty: not known yet. */
  readonly url: string;
}

function Workspace({ models, playground, url }: WorkspaceProps) {
  const search = playgroundRoute.useSearch();
  const navigate = playgroundRoute.useNavigate();
  const state = useSyncExternalStore(playground.subscribe, playground.state);
  const [code, setCode] = useState<Request>();
  const [isPasting, setPasting] = useState(false);
  const [isAtPrompts, setAtPrompts] = useState(false);
  const field = useRef<HTMLTextAreaElement>(null);
  const chosen = chosenModels(search, models);
  const family = search.family ?? 'chat';
  const change = (changes: Search): void =>
    void navigate({ search: { ...search, ...changes } as never, replace: true });
  const setModels = (ids: readonly string[]): void => change(withModels(ids));

  const makeRequest: MakeRequest = (column, turns) => {
    const model = chosen[column];
    return model === undefined ? undefined : requestOf(url, search, playground.state(), model, turns);
  };
  const actions = useActions(playground, makeRequest, setCode);
  useEffect(() => playground.showColumns(chosen.length), [playground, chosen.length]);
  const isSendable = chosen.every((_, at) => makeRequest(at, []) !== undefined);
  const isContinued = family === 'completions' && state.columns.some((turns) => turns.length > 0);
  const isAsked = state.draft.trim() !== '' || state.attachments.length > 0;
  const mayRun =
    state.key !== undefined && url !== '' && isSendable && (isAsked || isContinued) && !playground.isRunning;
  const run = (): void => {
    if (mayRun) playground.send(makeRequest);
  };
  useShortcuts(playground, run);
  useSettled(state);
  useFollowing(state, playground.isRunning);
  const key = (
    <KeyBar
      held={state.key}
      isPasting={isPasting}
      onPasting={setPasting}
      onChange={(held) => playground.set({ key: held })}
    />
  );
  const draftTurn = { kind: 'user', text: state.draft, attachments: state.attachments } as const;
  return (
    <div className={styles['workspace']}>
      <Settings search={search} onChange={change} models={chosen} state={state} playground={playground} />
      <div className={styles['main']}>
        {state.key === undefined && key}
        <Toolbar
          held={state.key !== undefined && key}
          onAdd={
            chosen.length < columnsMax
              ? () => setModels([...chosen.map(({ model }) => model), nextModel(models, chosen)])
              : undefined
          }
          onCode={
            isSendable && url !== ''
              ? () =>
                  setCode(makeRequest(0, isAsked ? [...(state.columns[0] ?? []), draftTurn] : (state.columns[0] ?? [])))
              : undefined
          }
          onPrompts={() => setAtPrompts(true)}
          onClear={() => playground.clear()}
        />
        <Columns
          chosen={chosen}
          models={models}
          family={family}
          state={state}
          playground={playground}
          actions={actions}
          onModels={setModels}
        />
        {state.columns.every((turns) => turns.length === 0) && (
          <Examples
            models={chosen}
            family={family}
            onChoose={(changes, written) => {
              change({ format: undefined, ...changes });
              playground.set(written);
              field.current?.focus();
            }}
            results={state.resultsByTool}
          />
        )}
        <Composer
          playground={playground}
          state={state}
          url={url}
          isCompletion={family === 'completions'}
          takesImages={chosen.some((model) => featuresOf(family, model)?.includes('vision') === true)}
          mayRun={mayRun}
          onRun={run}
          field={field}
        />
      </div>
      {code !== undefined && <CodeDialog of={code} onClose={() => setCode(undefined)} />}
      {isAtPrompts && <Prompts {...{ search, chosen, models, playground, url }} onClose={() => setAtPrompts(false)} />}
    </div>
  );
}

interface PromptsProps extends WorkspaceProps {
  readonly search: Search;
  readonly chosen: readonly Model[];
  readonly onClose: () => void;
}

function Prompts({ search, chosen, models, playground, url, onClose }: PromptsProps) {
  const navigate = playgroundRoute.useNavigate();
  const { system, tools, schema, draft, columns } = playground.state();
  const use = (prompt: KeptPrompt): void => {
    const chosenThen = chosenModels(prompt.search, models);
    playground.restore(prompt, (column, turns) => {
      const model = chosenThen[column];
      return model && requestOf(url, prompt.search, prompt, model, turns);
    });
    void navigate({ search: prompt.search as never, replace: true });
    onClose();
  };
  const current = {
    ...{ system, tools, schema, draft },
    search: { ...search, ...withModels(chosen.map(({ model }) => model)) },
    messages: messagesOf((columns[0] ?? []).filter((turn) => turn.kind === 'user' || turn.state !== 'running')),
  };
  return <PromptsDialog owner={playground.owner} current={current} onUse={use} onClose={onClose} />;
}

/** The same object as long as the page is there, so that only answers that have changed are drawn anew. */
function useActions(
  playground: Playground,
  makeRequest: MakeRequest,
  showCode: (request: Request) => void,
): AnswerActions {
  const latest = useRef(makeRequest);
  latest.current = makeRequest;
  return useMemo(
    () => ({
      again: (column, place) => playground.again(column, place, latest.current),
      edit: (column, place, text) => playground.edit(column, place, text, latest.current),
      returnResults: (column, place) => playground.returnResults(column, place, latest.current),
      setResult: (column, place, callId, text) => playground.setResult(column, place, callId, text),
      showCode: ({ request }) => showCode(request),
    }),
    [playground, showCode],
  );
}

interface ColumnsProps extends Pick<WorkspaceProps, 'models' | 'playground'> {
  readonly chosen: readonly Model[];
  readonly family: NonNullable<Search['family']>;
  readonly state: PlaygroundState;
  readonly actions: AnswerActions;
  readonly onModels: (ids: readonly string[]) => void;
}

/** Models side by side. */
function Columns({ chosen, models, family, state, playground, actions, onModels }: ColumnsProps) {
  const remove = (place: number): void => {
    playground.removeColumn(place);
    onModels(chosen.filter((_, at) => at !== place).map(({ model }) => model));
  };
  return (
    <div className={styles['columns']} data-count={chosen.length}>
      {chosen.map((model, at) => (
        <Column
          key={at}
          at={at}
          model={model}
          models={models}
          family={family}
          turns={state.columns[at] ?? []}
          actions={actions}
          onModel={(place, id) => onModels(chosen.map((one, index) => (index === place ? id : one.model)))}
          {...(chosen.length > 1 ? { onRemove: remove } : {})}
        />
      ))}
    </div>
  );
}

/** One that is not there yet, where there is one. */
const nextModel = (models: readonly Model[], chosen: readonly Model[]): string =>
  (models.find((model) => !chosen.includes(model)) ?? chosen[0]!).model;

interface ToolbarProps {
  /** The key of the page, where it has one. */
  readonly held: ReactNode;
  readonly onAdd: (() => void) | undefined;
  readonly onCode: (() => void) | undefined;
  readonly onPrompts: () => void;
  readonly onClear: () => void;
}

function Toolbar({ held, onAdd, onCode, onPrompts, onClear }: ToolbarProps) {
  const t = useText<PlaygroundTexts>('playground');
  return (
    <div className={styles['toolbar']}>
      <Button small disabled={onAdd === undefined} onClick={onAdd}>
        <PlusIcon />
        {t('addModel')}
      </Button>
      <Button small disabled={onCode === undefined} onClick={onCode}>
        {t('code')}
      </Button>
      <span className={styles['link']}>
        <CopyButton text={location.href} label={t('copyLink')} wide look="plain" />
      </span>
      <Button small onClick={onPrompts}>
        {t('prompts')}
      </Button>
      <Button small onClick={onClear}>
        {t('clear')}
      </Button>
      {held}
    </div>
  );
}

interface ExamplesProps {
  readonly models: readonly Model[];
  readonly family: NonNullable<Search['family']>;
  readonly results: PlaygroundState['resultsByTool'];
  readonly onChoose: (search: Search, written: Partial<PlaygroundState>) => void;
}

function Examples({ models, family, results, onChoose }: ExamplesProps) {
  const t = useText<PlaygroundTexts>('playground');
  return (
    <EmptyState
      title={t('empty')}
      action={
        <div className={styles['examples']}>
          {examples.map(({ name, prompt, needs, search, written }) => (
            <Button
              key={name}
              disabled={models.every((model) => featuresOf(family, model)?.includes(needs) !== true)}
              onClick={() =>
                onChoose(search, {
                  draft: t(prompt),
                  ...written,
                  resultsByTool: { ...results, ...written.resultsByTool },
                })
              }
            >
              {t(name)}
            </Button>
          ))}
        </div>
      }
    >
      {t('emptyText')}
    </EmptyState>
  );
}

/** Ctrl or ⌘ with Enter runs, Escape stops: wherever one is on the page, but in no dialog. */
function useShortcuts(playground: Playground, run: () => void): void {
  const latest = useRef(run);
  latest.current = run;
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (document.querySelector('dialog[open]') !== null) return;
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        latest.current();
      } else if (event.key === 'Escape' && playground.isRunning) {
        event.preventDefault();
        playground.stop();
      }
    };
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, [playground]);
}

/** What was charged changes what the shell shows. */
function useSettled({ columns }: PlaygroundState): void {
  const refresh = useRefresh();
  const settled = columns.flat().filter((turn) => turn.kind === 'answer' && turn.receipt).length;
  useEffect(() => {
    if (settled > 0) void refresh(['/v1/credits', '/v1/keys']);
  }, [settled, refresh]);
}

const nearPx = 160;

/** The end of the page stays in sight while answers grow, for who was there. */
function useFollowing({ columns }: PlaygroundState, isRunning: boolean): void {
  const wasAtEnd = useRef(true);
  useEffect(() => {
    const onScroll = (): void => {
      const { scrollHeight, clientHeight, scrollTop } = document.documentElement;
      wasAtEnd.current = scrollHeight - clientHeight - scrollTop < nearPx;
    };
    document.addEventListener('scroll', onScroll, { passive: true });
    return () => document.removeEventListener('scroll', onScroll);
  }, []);
  useEffect(() => {
    if (isRunning && wasAtEnd.current) window.scrollTo({ top: document.documentElement.scrollHeight });
  }, [columns, isRunning]);
}
