import { useState } from 'react';

import { useGet, useRefresh, useSend } from '../../api/use-api.ts';
import type { Row } from '../../api/use-api.ts';
import { createPasskey, hasPasskeys, NoPasskey } from '../../app/passkeys.ts';
import { Button } from '../../components/button.tsx';
import { ConfirmDialog, Dialog } from '../../components/dialog.tsx';
import { Time } from '../../components/figures.tsx';
import { Form, FormButtons, TextField } from '../../components/form.tsx';
import { Panel } from '../../components/page.tsx';
import { EmptyState, Loaded } from '../../components/state.tsx';
import { DataTable, wholeList } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { toast } from '../../components/toast.tsx';
import { useText } from '../../i18n/text.ts';
import { deviceOf } from './device.ts';
import type { SettingsTexts } from './messages/en.ts';

type Passkey = Row<'/v1/auth/passkeys'>;
const refreshes = ['/v1/auth/passkeys'];

export function Passkeys() {
  const t = useText<SettingsTexts>('settings');
  const found = useGet('/v1/auth/passkeys');
  const [isAdding, setAdding] = useState(false);
  const [removed, setRemoved] = useState<Passkey>();
  const columns: readonly Column<Passkey>[] = [
    { head: t('name'), main: true, cell: ({ name }) => <bdi>{name ?? t('passkey')}</bdi> },
    { head: t('added'), cell: ({ created_at: at }) => <Time at={at} relative /> },
    {
      head: t('actions'),
      bare: true,
      cell: (passkey) => (
        <Button
          small
          look="quiet"
          aria-label={t('removeNamed', { name: passkey.name ?? t('passkey') })}
          onClick={() => setRemoved(passkey)}
        >
          {t('remove')}
        </Button>
      ),
    },
  ];
  return (
    <Panel
      title={t('passkeys')}
      flush
      actions={
        hasPasskeys() && (
          <Button small onClick={() => setAdding(true)}>
            {t('addPasskey')}
          </Button>
        )
      }
    >
      <Loaded of={found}>
        {({ data }) => (
          <DataTable
            label={t('passkeys')}
            columns={columns}
            list={wholeList(data)}
            keyOf={({ id }) => id}
            empty={
              <EmptyState title={t('noPasskeys')}>{t(hasPasskeys() ? 'passkeyText' : 'noPasskeysHere')}</EmptyState>
            }
          />
        )}
      </Loaded>
      {isAdding && <AddDialog onClose={() => setAdding(false)} />}
      {removed !== undefined && <RemoveDialog of={removed} onClose={() => setRemoved(undefined)} />}
    </Panel>
  );
}

/** A name to know it by; then the browser asks. */
function AddDialog({ onClose }: { readonly onClose: () => void }) {
  const t = useText<SettingsTexts>('settings');
  const refresh = useRefresh();
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const { browser, system } = deviceOf(navigator.userAgent);
  const add = async (form: FormData): Promise<void> => {
    setBusy(true);
    setError(undefined);
    try {
      await createPasskey(String(form.get('name')).trim());
      await refresh(refreshes);
      toast(t('passkeyAdded'));
      onClose();
    } catch (failure) {
      setError(failure instanceof NoPasskey ? new Error(t('passkeyCancelled')) : failure);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog title={t('addPasskey')} onClose={onClose}>
      <p>{t('passkeyText')}</p>
      <Form error={error} onSubmit={(form) => void add(form)}>
        <TextField
          name="name"
          label={t('name')}
          hint={t('passkeyNameHint')}
          defaultValue={[browser, system].filter((part) => part !== undefined).join(', ')}
          maxLength={100}
          autoComplete="off"
          autoFocus
        />
        <FormButtons>
          <Button type="submit" look="primary" busy={isBusy}>
            {t('addPasskey')}
          </Button>
        </FormButtons>
      </Form>
    </Dialog>
  );
}

function RemoveDialog({ of: passkey, onClose }: { readonly of: Passkey; readonly onClose: () => void }) {
  const t = useText<SettingsTexts>('settings');
  const remove = useSend('delete', '/v1/auth/passkeys/{id}', { refreshes });
  const confirm = (): void =>
    remove.mutate(
      { params: { path: { id: passkey.id } } },
      {
        onSuccess: () => {
          toast(t('passkeyRemoved'));
          onClose();
        },
      },
    );
  return (
    <ConfirmDialog
      title={t('removePasskey', { name: passkey.name ?? t('passkey') })}
      action={t('remove')}
      danger
      busy={remove.isPending}
      error={remove.error}
      onConfirm={confirm}
      onClose={onClose}
    >
      {t('removePasskeyText')}
    </ConfirmDialog>
  );
}
