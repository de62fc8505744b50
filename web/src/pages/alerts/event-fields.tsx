import { useState } from 'react';

import { Checkbox, Field } from '../../components/form.tsx';
import { useText } from '../../i18n/text.ts';
import { offeredEvents } from './events.ts';
import type { Endpoint } from './events.ts';
import type { AlertTexts } from './messages/en.ts';
import styles from './alerts.module.css';

/** All events, also those that come later, or the ones that are chosen. */
export function EventFields({ chosen }: { readonly chosen: Endpoint['events'] }) {
  const t = useText<AlertTexts>('alerts');
  const [isAll, setAll] = useState(chosen === null);
  return (
    <Field label={t('events')} name="events">
      {({ id }) => (
        <div id={id} className={styles['events']} role="group" aria-label={t('events')}>
          <Checkbox
            name="all"
            label={t('allEvents')}
            hint={t('allEventsHint')}
            checked={isAll}
            onChange={(event) => setAll(event.target.checked)}
          />
          {!isAll &&
            offeredEvents.map(([type, text]) => (
              <Checkbox
                key={type}
                name="event"
                value={type}
                label={
                  <>
                    <code>{type}</code> <span className={styles['quiet']}>{t(text)}</span>
                  </>
                }
                defaultChecked={chosen === null || chosen.includes(type)}
              />
            ))}
        </div>
      )}
    </Field>
  );
}
