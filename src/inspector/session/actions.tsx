/** What can be done with a session as a whole. */
import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { sessionPath } from '../../wire/views.ts'
import { Button, CopyButton } from '../shared/parts.tsx'
import { go, sessionHref } from '../shared/router.ts'
import { saveBlob } from '../shared/save.ts'
import { api } from '../shared/server.ts'
import { GrantsDialog } from './grants-dialog.tsx'
import { SettingsDialog } from './settings.tsx'
import { ShareDialog } from './share-dialog.tsx'
import type { SessionModel } from './session-model.ts'

/** The time for the second click on "Close session". */
const CONFIRM_MS = 4_000

export function SessionActions({ model }: { readonly model: SessionModel }) {
  const [isSharing, setSharing] = useState(false)
  const [isConfiguring, setConfiguring] = useState(false)
  const [showsGrants, setShowsGrants] = useState(false)
  const isOpen = model.isOpen.value
  const isMember = model.access.link === null
  const mayManage = isOpen && model.may('manage')
  return (
    <span class="actions">
      {!isOpen || !model.may('talk') ? null : model.isWatcher.value ? (
        <Button
          onClick={() => model.takePart()}
          title="Until then this page only watches: agents do not wait for its answers"
        >
          Take part
        </Button>
      ) : (
        <Button
          onClick={() => model.watch()}
          title="Give up this page's part: agents do not wait for its answers any more"
        >
          Watch only
        </Button>
      )}
      {mayManage && isMember ? <Button onClick={() => setSharing(true)}>Share</Button> : null}
      {isMember ? (
        <Menu>
          <MenuItems model={model} configure={() => setConfiguring(true)} />
          {isOpen ? (
            <Button kind="plain" onClick={() => setShowsGrants(true)}>
              What is always allowed
            </Button>
          ) : null}
          {mayManage ? <CloseButton model={model} /> : null}
        </Menu>
      ) : null}
      {isConfiguring ? (
        <SettingsDialog model={model} onClose={() => setConfiguring(false)} />
      ) : null}
      {isSharing ? <ShareDialog session={model.id} onClose={() => setSharing(false)} /> : null}
      {showsGrants ? (
        <GrantsDialog
          session={model.id}
          mayRevoke={model.may('answer')}
          onClose={() => setShowsGrants(false)}
        />
      ) : null}
    </span>
  )
}

/** Items behind one button; Escape and a click elsewhere close it. */
function Menu({ children }: { readonly children: ComponentChildren }) {
  const menu = useRef<HTMLDetailsElement>(null)
  useEffect(() => {
    const close = (event: Event): void => {
      const { current } = menu
      if (current === null || !current.open) return
      const isInside = event.target instanceof Node && current.contains(event.target)
      if (event instanceof KeyboardEvent ? event.key === 'Escape' : !isInside) current.open = false
    }
    document.addEventListener('pointerdown', close)
    document.addEventListener('keydown', close)
    return () => {
      document.removeEventListener('pointerdown', close)
      document.removeEventListener('keydown', close)
    }
  }, [])
  return (
    <details class="menu" ref={menu}>
      <summary class="button" aria-label="More actions">
        <span aria-hidden="true">•••</span>
      </summary>
      <div class="menu-items">{children}</div>
    </details>
  )
}

type MenuItemsProps = { readonly model: SessionModel; readonly configure: () => void }

function MenuItems({ model, configure }: MenuItemsProps) {
  const { id } = model
  const fail = (what: string) => (error: Error) => {
    model.problem.value = `${what}: ${error.message}`
  }
  const save = async (path: string, name: string): Promise<void> => {
    saveBlob(await (await api.call(`${sessionPath(id)}/${path}`)).blob(), name)
  }
  const fork = (): void => {
    api.fork(id, undefined).then(({ id: made }) => go(sessionHref(made)), fail('Not forked'))
  }
  return (
    <>
      <CopyButton text={id}>Copy id</CopyButton>
      <CopyButton text={() => new URL(sessionHref(id), location.href).href}>
        Copy address
      </CopyButton>
      <CopyButton text={() => curlOfSession(id)}>Copy as curl</CopyButton>
      <Button
        kind="plain"
        onClick={() => void save('transcript', `${id}.jsonl`).catch(fail('Not exported'))}
      >
        Export the conversation
      </Button>
      <Button kind="plain" onClick={() => void exportLog(id).catch(fail('Not exported'))}>
        Export the log
      </Button>
      {model.may('talk') && model.isOpen.value ? (
        <Button kind="plain" onClick={configure}>
          Settings…
        </Button>
      ) : null}
      {model.may('talk') ? (
        <Button kind="plain" onClick={fork}>
          Fork the session
        </Button>
      ) : null}
    </>
  )
}

function curlOfSession(id: string): string {
  const token = api.token === null ? '' : ' -H "authorization: Bearer $HOLDFAST_TOKEN"'
  return `curl -s '${api.url}${sessionPath(id)}'${token}`
}

/** One event per line. */
async function exportLog(id: string): Promise<void> {
  const lines: string[] = []
  for await (const event of api.events(id)) lines.push(`${JSON.stringify(event)}\n`)
  saveBlob(new Blob(lines, { type: 'application/jsonl' }), `${id}.events.jsonl`)
}

/** Closing affects all clients and cannot be undone, so it takes a second click. */
function CloseButton({ model }: { readonly model: SessionModel }) {
  const [isSure, setSure] = useState(false)
  useEffect(() => {
    if (!isSure) return
    const timer = setTimeout(() => setSure(false), CONFIRM_MS)
    return () => clearTimeout(timer)
  }, [isSure])
  const close = (): void => {
    if (!isSure) return setSure(true)
    api.close(model.id).catch((error: Error) => {
      model.problem.value = `Not closed: ${error.message}`
    })
  }
  return (
    <Button kind="danger" class="close" onClick={close}>
      {isSure ? 'Close it for everybody?' : 'Close session'}
    </Button>
  )
}
