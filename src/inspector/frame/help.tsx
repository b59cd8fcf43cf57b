/** The keys that work everywhere. */
import { Dialog } from '../shared/dialog.tsx'
import { Button } from '../shared/parts.tsx'
import { hasSingleKeys, KEYS } from './keyboard.ts'

export function Help({ onClose }: { readonly onClose: () => void }) {
  return (
    <Dialog title="Keyboard" onClose={onClose}>
      <dl class="keys">
        {KEYS.map(([keys, meaning]) => (
          <div key={keys}>
            <dt>
              {keys.split(', ').map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
      <label class="check">
        <input
          type="checkbox"
          checked={hasSingleKeys.value}
          onChange={(event) => (hasSingleKeys.value = event.currentTarget.checked)}
        />
        <span>Keys without Ctrl work</span>
      </label>
      <div class="buttons">
        <Button kind="primary" onClick={onClose}>
          Close
        </Button>
      </div>
    </Dialog>
  )
}
