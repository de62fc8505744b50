import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { ReactNode } from 'react';

import { useGet } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import { Button, IconButton, LinkButton } from '../../components/button.tsx';
import { Id } from '../../components/code.tsx';
import { Count, Price } from '../../components/figures.tsx';
import { MoreIcon } from '../../components/icons.tsx';
import { Menu, MenuItem } from '../../components/menu.tsx';
import { Facts, Page, Panel, Tiles } from '../../components/page.tsx';
import { EmptyState, ErrorNote, Skeleton } from '../../components/state.tsx';
import { useText } from '../../i18n/text.ts';
import { EditModel, RemoveModel, RetireModel, SwitchBackend } from './edit-model.tsx';
import { PriceDialog } from './price-dialog.tsx';
import type { Model } from './price-dialog.tsx';
import { Prices } from './prices.tsx';
import { Retirement } from './retirement.tsx';
import { ServedAt } from './served-at.tsx';
import { TestBackend } from './test-backend.tsx';
import type { OperatorCatalogueTexts } from './messages/en.ts';
import styles from './operator-catalogue.module.css';

export function ModelDetail({ id }: { readonly id: string }) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  const models = useGet('/v1/admin/models', undefined, { every: 10_000 });
  const crumb = (
    <Link to="/operator/catalogue" search={{} as never}>
      {t('title')}
    </Link>
  );
  const model = models.data?.data.find((one) => one.id === id);
  if (model !== undefined) return <ShownModel of={model} models={models.data?.data ?? []} crumb={crumb} />;
  return (
    <Page title={models.data === undefined ? t('model') : t('gone')} crumb={crumb}>
      {models.data !== undefined ? (
        <EmptyState title={t('gone')}>{t('goneText', { id })}</EmptyState>
      ) : models.error === null ? (
        <Skeleton lines={8} />
      ) : (
        <ErrorNote error={models.error} onRetry={() => void models.refetch()} />
      )}
    </Page>
  );
}

interface ShownProps {
  readonly of: Model;
  readonly models: readonly Model[];
  readonly crumb: ReactNode;
}

type Open =
  'own' | 'list' | 'edit' | 'retire' | 'remove' | { readonly backend: string; readonly does: 'switch' | 'test' };

function ShownModel({ of: model, models, crumb }: ShownProps) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  const [open, setOpen] = useState<Open>();
  const backends = useGet('/v1/admin/backends', undefined, { every: 5000 });
  const served = (backends.data?.data ?? []).filter((one) => one.model === model.id);
  const close = (): void => setOpen(undefined);
  // An adapter is written in the entry of its base.
  const isOwnEntry = model.adapter_of === null;
  const actions = (
    <>
      <Menu trigger={<IconButton label={t('more')} icon={<MoreIcon />} look="plain" />}>
        <MenuItem onSelect={() => setOpen('own')}>{t('setPrice')}</MenuItem>
        {isOwnEntry && <MenuItem onSelect={() => setOpen('retire')}>{t('retire')}</MenuItem>}
        {isOwnEntry && <MenuItem onSelect={() => setOpen('remove')}>{t('remove')}</MenuItem>}
      </Menu>
      <LinkButton to="/playground" search={{ model: model.id } as never}>
        {t('playground')}
      </LinkButton>
      {isOwnEntry && <Button onClick={() => setOpen('list')}>{t('tryListPrice')}</Button>}
      {isOwnEntry && (
        <Button look="primary" onClick={() => setOpen('edit')}>
          {t('edit')}
        </Button>
      )}
    </>
  );
  const tile = (name: string, microcents: number) => ({
    name,
    value: <Price microcents={microcents} />,
    note: t('perMillion'),
  });
  const defaults = Object.entries(model.defaults).map(([name, value]) => `${name} ${value}`);
  return (
    <Page title={model.display_name} crumb={crumb} lead={<Id value={model.id} />} actions={actions}>
      <Tiles
        tiles={[
          tile(t('input'), model.input_microcents_per_million),
          tile(t('cached'), model.cache_read_microcents_per_million),
          tile(t('output'), model.output_microcents_per_million),
          { name: t('context'), value: <Count value={model.context_length} />, note: t('tokens') },
        ]}
      />
      <Panel title={t('facts')}>
        <Facts
          facts={[
            [
              t('maxOutput'),
              model.max_output_tokens === null ? t('asContext') : <Count value={model.max_output_tokens} />,
            ],
            ...(model.adapter_of === null ? [] : [[t('adapterOf'), <code>{model.adapter_of}</code>] as const]),
            [t('retirement'), <Retirement date={model.deprecation_date} />],
            [
              t('forAccounts'),
              model.dedicated_to.length === 0
                ? t('everybody')
                : model.dedicated_to.map((account) => (
                    <div key={account}>
                      <Link to={`/operator/accounts/${account}`}>{account}</Link>
                    </div>
                  )),
            ],
            [t('defaults'), defaults.length === 0 ? t('none') : defaults.join(', ')],
            [
              t('servedAt'),
              <>
                <ServedAt backends={served} />
                <Link to="/operator/system">{t('toSystem')}</Link>
              </>,
            ],
            [
              t('backends'),
              <Switches
                model={model}
                servers={served.flatMap(({ name, url }) => (url === null ? [] : [name]))}
                onOpen={setOpen}
              />,
            ],
          ]}
        />
      </Panel>
      <Prices model={model.id} />
      <Dialogs open={open} model={model} models={models} onClose={close} />
    </Page>
  );
}

interface SwitchesProps {
  readonly model: Model;
  /** Names of the backends that are servers, and can be tested. */
  readonly servers: readonly string[];
  readonly onOpen: (open: Open) => void;
}

/** Backends of the file, each with what tests and what switches it. */
function Switches({ model, servers, onOpen }: SwitchesProps) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  return (
    <ul className={styles['switches']}>
      {model.written_backends.map(({ name, disabled }) => (
        <li key={name}>
          <code>{name}</code>
          {disabled && <Badge tone="plain">{t('disabledBackends')}</Badge>}
          {model.adapter_of === null && servers.includes(name) && (
            <Button small aria-label={t('testOf', { name })} onClick={() => onOpen({ backend: name, does: 'test' })}>
              {t('test')}
            </Button>
          )}
          <Button
            small
            aria-label={t(disabled ? 'enableOf' : 'disableOf', { name })}
            onClick={() => onOpen({ backend: name, does: 'switch' })}
          >
            {t(disabled ? 'enable' : 'disable')}
          </Button>
        </li>
      ))}
    </ul>
  );
}

interface DialogsProps {
  readonly open: Open | undefined;
  readonly model: Model;
  readonly models: readonly Model[];
  readonly onClose: () => void;
}

function Dialogs({ open, model, models, onClose: close }: DialogsProps) {
  if (typeof open === 'object') {
    const { backend, does } = open;
    if (does === 'test') return <TestBackend model={model.id} backend={backend} onClose={close} />;
    return <SwitchBackend model={model} backend={backend} onClose={close} />;
  }
  return (
    <>
      {open === 'edit' && <EditModel model={model} onClose={close} />}
      {open === 'retire' && <RetireModel model={model} models={models} onClose={close} />}
      {open === 'remove' && <RemoveModel model={model} onClose={close} />}
      {open === 'own' && <PriceDialog models={[model]} onClose={close} />}
      {open === 'list' && <PriceDialog account={null} models={[model]} onClose={close} />}
    </>
  );
}
