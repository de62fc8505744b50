import { useState } from 'react';

import { useSession } from '../../api/session.ts';
import { useGet, useSend } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import { Button } from '../../components/button.tsx';
import { ConfirmDialog } from '../../components/dialog.tsx';
import { Loaded } from '../../components/state.tsx';
import { toast } from '../../components/toast.tsx';
import { useText } from '../../i18n/text.ts';
import type { SettingsTexts } from './messages/en.ts';
import { Part } from './part.tsx';

/** Whether every request of the account has to be served where nothing is retained. */
export function ZeroRetention() {
  const t = useText<SettingsTexts>('settings');
  const { account } = useSession();
  const found = useGet('/v1/account');
  const [isAsking, setAsking] = useState(false);
  return (
    <Loaded of={found} lines={2}>
      {({ zdr_required: isRequired }) => (
        <Part
          title={t('zdr')}
          text={
            <>
              {isRequired ? <Badge tone="good">{t('on')}</Badge> : <Badge>{t('off')}</Badge>}{' '}
              {t(isRequired ? 'zdrOn' : 'zdrOff')}
            </>
          }
        >
          {account?.role === 'owner' && (
            <Button onClick={() => setAsking(true)}>{t(isRequired ? 'zdrStop' : 'zdrRequire')}</Button>
          )}
          {isAsking && <ChangeDialog isRequired={isRequired} onClose={() => setAsking(false)} />}
        </Part>
      )}
    </Loaded>
  );
}

interface ChangeDialogProps {
  readonly isRequired: boolean;
  readonly onClose: () => void;
}

/** Says what will be refused: with no backend that retains nothing, it is everything. */
function ChangeDialog({ isRequired, onClose }: ChangeDialogProps) {
  const t = useText<SettingsTexts>('settings');
  const models = useGet('/v1/models/cards');
  const change = useSend('patch', '/v1/account', { refreshes: ['/v1/account'] });
  const confirm = (): void =>
    change.mutate(
      { body: { zdr_required: !isRequired } },
      {
        onSuccess: () => {
          toast(t('saved'));
          onClose();
        },
      },
    );
  return (
    <ConfirmDialog
      title={t(isRequired ? 'zdrStopTitle' : 'zdrRequireTitle')}
      action={t(isRequired ? 'zdrStop' : 'zdrRequire')}
      busy={change.isPending}
      error={change.error}
      onConfirm={confirm}
      onClose={onClose}
    >
      {isRequired ? (
        t('zdrStopText')
      ) : (
        <>
          <p>{t('zdrRequireText')}</p>
          <Loaded of={models} lines={1}>
            {({ data }) => {
              const refused = data.filter(({ card }) => !card.zdr_supported).map(({ model }) => model);
              return (
                <p>
                  {refused.length === 0
                    ? t('zdrAllModels')
                    : refused.length === data.length
                      ? t('zdrNoModel')
                      : t('zdrWithout', { models: refused.join(', ') })}
                </p>
              );
            }}
          </Loaded>
        </>
      )}
    </ConfirmDialog>
  );
}
