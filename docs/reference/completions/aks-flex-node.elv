
use builtin;
use str;

set edit:completion:arg-completer[aks-flex-node] = {|@words|
    fn spaces {|n|
        builtin:repeat $n ' ' | str:join ''
    }
    fn cand {|text desc|
        edit:complex-candidate $text &display=$text' '(spaces (- 14 (wcswidth $text)))$desc
    }
    var command = 'aks-flex-node'
    for word $words[1..-1] {
        if (str:has-prefix $word '-') {
            break
        }
        set command = $command';'$word
    }
    var completions = [
        &'aks-flex-node'= {
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help'
            cand --help 'Print help'
            cand -V 'Print version'
            cand --version 'Print version'
            cand start 'Make this host a node of the cluster that the configuration names; running it again changes nothing'
            cand bootstrap 'Make this host a node of the cluster that the configuration names; running it again changes nothing'
            cand status 'Show what the node is now'
            cand upgrade 'Bring the node to what the configuration says, and back by itself when that does not come up'
            cand rollback 'Go back to the version that ran before, or to another one that is installed'
            cand restart 'Restart containerd and kubelet; pods are left alone'
            cand stop 'Stop containerd and kubelet until `start-node`; a reboot does not start them'
            cand start-node 'Start containerd and kubelet after a `stop`'
            cand slots 'The installed versions'
            cand reset 'Take everything away that `start` made; the configuration stays'
            cand unbootstrap 'Take everything away that `start` made; the configuration stays'
            cand daemon 'Keep the node: what the agent''s service runs'
            cand agent 'Keep the node: what the agent''s service runs'
            cand plan 'Print the steps that an operation would run; changes nothing'
            cand bundle 'Pack release files that you have into an offline bundle'
            cand version 'Print what this program is'
            cand completion 'Print a completion script for a shell'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'aks-flex-node;start'= {
            cand --config 'The configuration file; root''s and not readable by others'
            cand --wait 'What to wait for at the end [default: ready; a node that only lacks its network plugin then ends well]'
            cand --timeout 'How long to wait for it, as 90s or 5m'
            cand --output 'Text for people, or JSON for programs'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'aks-flex-node;bootstrap'= {
            cand --config 'The configuration file; root''s and not readable by others'
            cand --wait 'What to wait for at the end [default: ready; a node that only lacks its network plugin then ends well]'
            cand --timeout 'How long to wait for it, as 90s or 5m'
            cand --output 'Text for people, or JSON for programs'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'aks-flex-node;status'= {
            cand --output 'Text for people, or JSON for programs'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'aks-flex-node;upgrade'= {
            cand --config 'The configuration file; root''s and not readable by others'
            cand --to-config 'Go to what this file says; the configuration stays as it is'
            cand --to-version 'Go to this Kubernetes version with everything else as it runs now'
            cand --output 'Text for people, or JSON for programs'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -y 'Do not ask, neither before an older version nor before a goal that a person went back from'
            cand --yes 'Do not ask, neither before an older version nor before a goal that a person went back from'
            cand --retry 'Try a goal again that failed'
            cand --without-rollback 'Go on although the version that runs is damaged: a failure then leaves the new version as it is'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'aks-flex-node;rollback'= {
            cand --to 'The version to go to, as `slots list` names it [default: the one that ran before]'
            cand --output 'Text for people, or JSON for programs'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -y 'Do not ask'
            cand --yes 'Do not ask'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'aks-flex-node;restart'= {
            cand --output 'Text for people, or JSON for programs'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'aks-flex-node;stop'= {
            cand --output 'Text for people, or JSON for programs'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'aks-flex-node;start-node'= {
            cand --output 'Text for people, or JSON for programs'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'aks-flex-node;slots'= {
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help'
            cand --help 'Print help'
            cand list 'Show them with their sizes'
            cand prune 'Remove all but the active one, the one before it, what still runs, and one more'
            cand repair 'Put the files of a damaged or incomplete version right from the artifact source; what runs goes on running'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'aks-flex-node;slots;list'= {
            cand --output 'Text for people, or JSON for programs'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'aks-flex-node;slots;prune'= {
            cand --output 'Text for people, or JSON for programs'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'aks-flex-node;slots;repair'= {
            cand --config 'The configuration file; root''s and not readable by others'
            cand --output 'Text for people, or JSON for programs'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'aks-flex-node;slots;help'= {
            cand list 'Show them with their sizes'
            cand prune 'Remove all but the active one, the one before it, what still runs, and one more'
            cand repair 'Put the files of a damaged or incomplete version right from the artifact source; what runs goes on running'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'aks-flex-node;slots;help;list'= {
        }
        &'aks-flex-node;slots;help;prune'= {
        }
        &'aks-flex-node;slots;help;repair'= {
        }
        &'aks-flex-node;slots;help;help'= {
        }
        &'aks-flex-node;reset'= {
            cand --kubeconfig 'Delete the Node from the cluster too, with this kubeconfig; root''s and not readable by others'
            cand --output 'Text for people, or JSON for programs'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -y 'Do not ask'
            cand --yes 'Do not ask'
            cand --keep-images 'Keep /var/lib/containerd with the images in it'
            cand --remove-agent 'Remove the installed agent too'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'aks-flex-node;unbootstrap'= {
            cand --kubeconfig 'Delete the Node from the cluster too, with this kubeconfig; root''s and not readable by others'
            cand --output 'Text for people, or JSON for programs'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -y 'Do not ask'
            cand --yes 'Do not ask'
            cand --keep-images 'Keep /var/lib/containerd with the images in it'
            cand --remove-agent 'Remove the installed agent too'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'aks-flex-node;daemon'= {
            cand --config 'The configuration file; root''s and not readable by others'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'aks-flex-node;agent'= {
            cand --config 'The configuration file; root''s and not readable by others'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'aks-flex-node;plan'= {
            cand --config 'The configuration file; root''s and not readable by others'
            cand --to-config 'For `upgrade`: to what this file says'
            cand --to-version 'For `upgrade`: to this Kubernetes version with everything else as it runs now'
            cand --to 'For `rollback`: to this version, as `slots list` names it'
            cand --output 'Text for people, or JSON for programs'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand --without-rollback 'For `upgrade`: without the way back'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'aks-flex-node;bundle'= {
            cand --kubelet 'The kubelet program, or an archive that has it'
            cand --kubectl 'The kubectl program, likewise'
            cand --containerd 'containerd: the release''s .tar.gz, or a directory with its programs'
            cand --runc 'The runc program'
            cand --cni 'The CNI plugins: the release''s .tgz, or a directory with them'
            cand --crictl 'crictl: the release''s .tar.gz, or the program'
            cand --kube-proxy 'The kube-proxy program; older agents want it in a bundle, this one does not'
            cand --image 'An image archive as `ctr images export` or `docker save` write it; may be repeated'
            cand --arch 'The architecture of the files [default: this machine''s]'
            cand --kubernetes-version 'The version of kubelet, kubectl and kube-proxy, where neither file name nor program tells it'
            cand --containerd-version 'The version of containerd, likewise'
            cand --runc-version 'The version of runc, likewise'
            cand --cni-version 'The version of the CNI plugins, likewise'
            cand --crictl-version 'The version of crictl, likewise'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'aks-flex-node;version'= {
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'aks-flex-node;completion'= {
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'aks-flex-node;help'= {
            cand start 'Make this host a node of the cluster that the configuration names; running it again changes nothing'
            cand status 'Show what the node is now'
            cand upgrade 'Bring the node to what the configuration says, and back by itself when that does not come up'
            cand rollback 'Go back to the version that ran before, or to another one that is installed'
            cand restart 'Restart containerd and kubelet; pods are left alone'
            cand stop 'Stop containerd and kubelet until `start-node`; a reboot does not start them'
            cand start-node 'Start containerd and kubelet after a `stop`'
            cand slots 'The installed versions'
            cand reset 'Take everything away that `start` made; the configuration stays'
            cand daemon 'Keep the node: what the agent''s service runs'
            cand plan 'Print the steps that an operation would run; changes nothing'
            cand bundle 'Pack release files that you have into an offline bundle'
            cand version 'Print what this program is'
            cand completion 'Print a completion script for a shell'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'aks-flex-node;help;start'= {
        }
        &'aks-flex-node;help;status'= {
        }
        &'aks-flex-node;help;upgrade'= {
        }
        &'aks-flex-node;help;rollback'= {
        }
        &'aks-flex-node;help;restart'= {
        }
        &'aks-flex-node;help;stop'= {
        }
        &'aks-flex-node;help;start-node'= {
        }
        &'aks-flex-node;help;slots'= {
            cand list 'Show them with their sizes'
            cand prune 'Remove all but the active one, the one before it, what still runs, and one more'
            cand repair 'Put the files of a damaged or incomplete version right from the artifact source; what runs goes on running'
        }
        &'aks-flex-node;help;slots;list'= {
        }
        &'aks-flex-node;help;slots;prune'= {
        }
        &'aks-flex-node;help;slots;repair'= {
        }
        &'aks-flex-node;help;reset'= {
        }
        &'aks-flex-node;help;daemon'= {
        }
        &'aks-flex-node;help;plan'= {
        }
        &'aks-flex-node;help;bundle'= {
        }
        &'aks-flex-node;help;version'= {
        }
        &'aks-flex-node;help;completion'= {
        }
        &'aks-flex-node;help;help'= {
        }
    ]
    $completions[$command]
}
