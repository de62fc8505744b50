import { Link } from '@tanstack/react-router';

import { useSession } from '../../api/session.ts';
import { useGet } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import { LinkButton } from '../../components/button.tsx';
import { Count, Price, Time } from '../../components/figures.tsx';
import { controlClass } from '../../components/form.tsx';
import { Page, Panel } from '../../components/page.tsx';
import { EmptyState, Loaded } from '../../components/state.tsx';
import { DataTable, wholeList } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { useText } from '../../i18n/text.ts';
import type { Text } from '../../i18n/text.ts';
import { modelsRoute } from './routes.ts';
import { isConversational } from '../../components/chat-models.ts';
import { microcentsOf } from './model.ts';
import type { Feature, Model } from './model.ts';
import type { ModelTexts } from './messages/en.ts';
import styles from './models.module.css';

/** What tells models apart, in a word each; the card has all. */
const telling: readonly Feature[] = ['vision', 'tools', 'json_schema', 'reasoning'];

export default function ModelListPage() {
  const t = useText<ModelTexts>('models');
  const { isOperator } = useSession();
  const { q } = modelsRoute.useSearch();
  const navigate = modelsRoute.useNavigate();
  const models = useGet('/v1/models/cards', undefined, { every: 10_000 });
  return (
    <Page
      title={t('title')}
      lead={t('lead')}
      actions={isOperator && <LinkButton to="/operator/catalogue">{t('add')}</LinkButton>}
    >
      <Loaded of={models}>
        {({ data }) => (
          <>
            <Panel
              flush
              actions={
                data.length > 0 && (
                  <div data-filter="">
                    <input
                      type="search"
                      className={controlClass}
                      aria-label={t('filter')}
                      placeholder={t('filter')}
                      value={q ?? ''}
                      onChange={({ target }) =>
                        void navigate({ search: { q: target.value || undefined } as never, replace: true })
                      }
                    />
                  </div>
                )
              }
            >
              <DataTable
                label={t('title')}
                columns={columnsOf(t)}
                list={wholeList(data.filter((model) => isMatch(model, q ?? '')))}
                keyOf={({ model }) => model}
                empty={
                  data.length > 0 ? (
                    <EmptyState title={t('noMatch')} />
                  ) : (
                    <EmptyState title={t('empty')}>{isOperator ? undefined : t('emptyText')}</EmptyState>
                  )
                }
              />
            </Panel>
          </>
        )}
      </Loaded>
    </Page>
  );
}

const isMatch = ({ model, card }: Model, typed: string): boolean =>
  [model, card.display_name, card.owned_by].some((text) => text.toLowerCase().includes(typed.trim().toLowerCase()));

const columnsOf = (t: Text<keyof ModelTexts>): readonly Column<Model>[] => [
  {
    head: t('model'),
    main: true,
    cell: ({ model, card, retires_at: retiresAt }) => (
      <>
        <Link to="/models/$id" params={{ id: model } as never}>
          {model}
        </Link>{' '}
        {retiresAt !== null && (
          <Badge tone="warn">
            {t('retires')} <Time at={retiresAt} relative />
          </Badge>
        )}
        {card.display_name !== model && <div className={styles['name']}>{card.display_name}</div>}
      </>
    ),
  },
  { head: t('state'), cell: (model) => <State of={model} /> },
  { head: t('capabilities'), cell: (model) => <Telling of={model} /> },
  { head: t('context'), number: true, cell: ({ card }) => <Count value={card.max_model_len} /> },
  {
    head: t('input'),
    number: true,
    cell: ({ card }) => <Price microcents={microcentsOf(card.service.pricing.input_cents_per_million)} />,
  },
  {
    head: t('output'),
    number: true,
    cell: ({ card }) => <Price microcents={microcentsOf(card.service.pricing.output_cents_per_million)} />,
  },
  {
    head: t('try'),
    bare: true,
    cell: (model) =>
      isConversational(model) && (
        <LinkButton
          small
          to="/playground"
          search={{ model: model.model } as never}
          aria-label={`${t('try')}: ${model.model}`}
        >
          {t('try')}
        </LinkButton>
      ),
  },
];

const states = {
  ready: { tone: 'good', text: 'ready' },
  starting: { tone: 'warn', text: 'starting' },
  failed: { tone: 'bad', text: 'failed' },
} as const satisfies Readonly<Record<Model['state'], object>>;

export function State({ of: { state } }: { readonly of: Model }) {
  const t = useText<ModelTexts>('models');
  const { tone, text } = states[state];
  return (
    <span>
      <Badge tone={tone}>{t(text)}</Badge>
    </span>
  );
}

function Telling({ of: { endpoints } }: { readonly of: Model }) {
  const t = useText<ModelTexts>('models');
  const own = telling.filter((feature) => endpoints.some(({ features }) => features.includes(feature)));
  const tasks = endpoints.filter(({ path }) => path === '/v1/embeddings' || path === '/v1/rerank');
  if (own.length + tasks.length === 0) return '–';
  return (
    <span className={styles['badges']}>
      {own.map((feature) => (
        <Badge key={feature}>{t(feature)}</Badge>
      ))}
      {tasks.map(({ path }) => (
        <Badge key={path}>{path.slice('/v1/'.length)}</Badge>
      ))}
    </span>
  );
}
